//! One call of an OAuth endpoint, and what the endpoints share.

use http::{HeaderMap, header};

use super::basic;
use super::form::Form;
use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{self, BearerToken};
use crate::auth::context::AuthContext;
use crate::broker::Broker;
use crate::gateway::context::RequestContext;
use crate::gateway::endpoints::ResourceServer;
use crate::limits::limiter::Key;
use crate::types::reject::{Reason, Reject};

/// What every endpoint needs.
pub struct Call<'c, 'r> {
    pub broker: &'c Broker,
    pub authenticator: &'c Authenticator,
    /// `[[oauth.resource_server]]`
    pub resource_servers: &'c [ResourceServer],
    pub headers: &'c HeaderMap,
    pub context: &'c mut RequestContext<'r>,
}

impl Call<'_, '_> {
    /// Authenticates a token from a form, by the same checks as a Bearer. The client proves by it who it is.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Caller, Reject> {
        self.authenticate_for(self.context.auth(), token).await
    }

    /// As [`Call::authenticate`], for a token that `caller` asks about. A bad signature does not count against the
    /// caller's address.
    pub(super) async fn authenticate_for_caller(&self, caller: Key, token: &str) -> Result<Caller, Reject> {
        let payer = self.context.worker.bad_signatures.of_introspection(caller);
        self.authenticate_for(AuthContext { payer, rejected_token: None, ..self.context.auth() }, token).await
    }

    async fn authenticate_for(&self, context: AuthContext<'_>, token: &str) -> Result<Caller, Reject> {
        let bearer = BearerToken::from_text(token, self.authenticator.token_size)?;
        self.authenticator.authenticate(bearer, &context).await
    }

    /// Rejects client credentials. Clients are public here, and a client that sends a secret expects it to be checked.
    pub(super) fn check_client(&self, form: &Form) -> Result<(), Reject> {
        let secrets = ["client_secret", "client_assertion", "client_assertion_type"];
        if secrets.iter().any(|name| form.get(name).is_some()) {
            return Err(Reject::new(Reason::ClientAuthentication, "a secret in the form"));
        }
        check_no_credentials(self.headers)
    }
}

/// Rejects client credentials in the head: see [`Call::check_client`].
pub fn check_no_credentials(headers: &HeaderMap) -> Result<(), Reject> {
    match headers.get_all(header::AUTHORIZATION).iter().all(bearer::is_bearer) {
        true => Ok(()),
        false => {
            let reject = Reject::new(Reason::ClientAuthentication, "credentials in Authorization");
            Err(Reject { used_basic: basic::is_used(headers), ..reject })
        }
    }
}

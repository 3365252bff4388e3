//! One call of an OAuth endpoint, and what the endpoints share.

use http::{HeaderMap, header};

use super::basic;
use super::form::Form;
use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{self, BearerToken};
use crate::auth::client_documents::ClientDocuments;
use crate::auth::context::AuthContext;
use crate::auth::proofs::ProofRule;
use crate::auth::registered_clients::ClientKeys;
use crate::broker::Broker;
use crate::gateway::authorization_counts::AuthorizationCounts;
use crate::gateway::call_checks::CallChecks;
use crate::gateway::context::RequestContext;
use crate::gateway::endpoints::Endpoints;
use crate::limits::limiter::Key;
use crate::tokens::authorization::narrowing::Narrowing;
use crate::tokens::jwt::NeededAudience;
use crate::types::reject::{Reason, Reject};

/// What every endpoint needs.
pub struct Call<'c, 'r> {
    pub broker: &'c Broker,
    pub authenticator: &'c Authenticator,
    pub endpoints: &'c Endpoints,
    pub client_keys: &'c ClientKeys,
    pub documents: &'c ClientDocuments,
    pub counts: &'c AuthorizationCounts,
    pub headers: &'c HeaderMap,
    pub context: &'c mut RequestContext<'r>,
}

impl<'c> Call<'c, '_> {
    /// `tokens.issuer`
    pub(crate) fn issuer(&self) -> &'c str {
        &self.broker.settings.issuer
    }

    pub(crate) fn checks(&self) -> CallChecks<'c> {
        let Broker { throttle, settings, .. } = self.broker;
        CallChecks { throttle, authenticator: self.authenticator, idle: settings.lifetimes.idle }
    }

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

    /// What the client wants its access token to be for.
    pub(super) fn narrowing(&self, form: &Form) -> Narrowing {
        let scope = form.get("scope").map(str::to_owned);
        let resources: Vec<String> = form.resources().map(str::to_owned).collect();
        if resources.is_empty() {
            return Narrowing { scope, ..Narrowing::default() };
        }
        let offered = self.endpoints.authorization.as_ref().map(|settings| settings.resources.clone());
        let of_gateway = self.endpoints.resources.of_gateway.iter().map(|resource| resource.url.clone());
        let of_ordinary = self.broker.settings.audience.iter().cloned().chain(of_gateway);
        Narrowing { scope, resources, offered: offered.unwrap_or_default(), of_ordinary: of_ordinary.collect() }
    }

    /// The token is a parameter, not a credential for a route, so that it may be an API key, or for the resource of a
    /// route, and needs no proof.
    async fn authenticate_for(&self, auth: AuthContext<'_>, token: &str) -> Result<Caller, Reject> {
        let auth = AuthContext { api_keys: true, audience: NeededAudience::Any, proof: ProofRule::Off, ..auth };
        let bearer = BearerToken::from_text(token, self.authenticator.token_size)?;
        self.authenticator.authenticate(bearer, &auth).await
    }
}

/// Rejects client credentials in the head: a client that sends some expects them to be checked.
pub fn check_no_credentials(headers: &HeaderMap) -> Result<(), Reject> {
    if headers.get_all(header::AUTHORIZATION).iter().all(bearer::is_bearer) {
        Ok(())
    } else {
        let reject = Reject::new(Reason::ClientAuthentication, "credentials in Authorization");
        Err(if basic::is_used(headers) { reject.of_basic() } else { reject })
    }
}

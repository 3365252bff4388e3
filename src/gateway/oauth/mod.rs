//! The standard doors, for clients that speak OAuth: the refresh of RFC 6749, revocation (RFC 7009), introspection (RFC 7662).
//!
//! They are other words for the same calls: the rotation, the revocation and the verification are those of everywhere else. A
//! refusal is an error by RFC 6749 section 5.2, with the members of every refusal beside it.

mod form;
mod introspect;
pub mod metadata;
mod revoke;
mod token;

use http::{HeaderMap, Response, header};

use crate::auth::authenticate::{Asker, Authenticator, Caller};
use crate::auth::bearer::{self, BearerToken};
use crate::broker::Broker;
use crate::gateway::endpoints::Endpoint;
use crate::protocols::http::body::Body;
use crate::telemetry::access_log::Record;
use crate::tokens::audit_event::EventContext;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use form::Form;

pub use introspect::INTROSPECT_SCOPE;

/// What every door needs.
pub struct Call<'c> {
    pub broker: &'c Broker,
    pub authenticator: &'c Authenticator,
    pub asker: Asker<'c>,
    pub headers: &'c HeaderMap,
    pub now: UnixTime,
}

impl Call<'_> {
    pub async fn answer(
        self,
        endpoint: Endpoint,
        content: &[u8],
        record: &mut Record,
    ) -> Result<Response<Body>, Reject> {
        let form = Form::read(self.headers, content)?;
        match endpoint {
            Endpoint::Token => self.exchange(&form, record).await,
            Endpoint::Revoke => self.revoke(&form, record).await,
            Endpoint::Introspect => self.introspect(&form, record).await,
            // A document is no call.
            Endpoint::ProtectedResource => Err(Reason::NoRoute.into()),
        }
    }

    /// Whose a token in a form is: good is what would be let through as a Bearer.
    async fn authenticate(&self, token: &str) -> Result<Caller, Reject> {
        let bearer = BearerToken::from_text(token, self.authenticator.token_size)?;
        self.authenticator.authenticate(bearer, self.asker, self.now).await
    }

    fn occasion(&self, record: &Record) -> EventContext {
        EventContext::new(self.now, self.asker.address, record.request_id)
    }

    /// Clients are public here: whoever shows a secret expects that it is checked, and it would not be.
    fn check_client(&self, form: &Form) -> Result<(), Reject> {
        let secrets = ["client_secret", "client_assertion", "client_assertion_type"];
        if secrets.iter().any(|name| form.get(name).is_some()) {
            return Err(Reject::new(Reason::ClientAuthentication, "a secret in the form"));
        }
        match self.headers.get_all(header::AUTHORIZATION).iter().all(bearer::is_bearer) {
            true => Ok(()),
            false => Err(Reject::new(Reason::ClientAuthentication, "credentials in Authorization")),
        }
    }
}

//! The authorization endpoint (OAuth 2.1 section 4.1): a client asks a user, who signs in at a provider and agrees.
//!
//! `request` checks what the client asks for, and sends the browser to the consent page with the request sealed in its
//! URL. `consent` finds the user, or sends the browser to a provider with that URL as its way back, shows the page, and
//! answers the client with a code. The token endpoint redeems it (`gateway/oauth/authorization_code.rs`). Nothing is
//! stored before. `registration` is the endpoint at which clients register themselves.
//!
//! [`AuthorizationCall`] is spread over these files: it is what one call needs.

mod browser_cookie;
mod clients;
mod consent;
mod decision;
mod html;
mod pages;
mod registration;
mod request;
pub mod settings;

use bytes::Bytes;
use http::{Request, Response};

use crate::auth::registered_clients::RegisteredClient;
use crate::gateway::authorization_server::clients::AskingClient;
use crate::gateway::authorization_server::settings::AuthorizationSettings;
use crate::gateway::context::RequestContext;
use crate::gateway::endpoints::BrowserEndpoint;
use crate::gateway::sign_in::SignIn;
use crate::protocols::http::body::Body;
use crate::types::reject::{Reason, Reject};

pub use registration::register;

/// One call of the authorization endpoint or of the consent page.
pub(super) struct AuthorizationCall<'c, 'r> {
    pub(super) settings: &'c AuthorizationSettings,
    /// `[[oauth.client]]`
    pub(super) clients: &'c [RegisteredClient],
    /// `tokens.issuer`
    pub(super) issuer: &'c str,
    pub(super) sign_in: &'c SignIn,
    pub(super) context: &'c mut RequestContext<'r>,
}

impl AuthorizationCall<'_, '_> {
    /// `form`: the body of a POST. Each failure is a page, because a user sees it.
    pub(super) async fn respond<B>(
        &mut self,
        endpoint: BrowserEndpoint,
        request: &Request<B>,
        form: Option<&Bytes>,
    ) -> Response<Body> {
        let answered = match (endpoint, form) {
            (BrowserEndpoint::Authorize, _) => self.authorize(request, form),
            (BrowserEndpoint::Consent, None) => self.show_consent(request).await,
            (BrowserEndpoint::Consent, Some(form)) => self.decide(request, form).await,
        };
        match answered {
            Ok(response) => response,
            Err(reject) => {
                let response = pages::failed(&reject, help(&reject));
                self.context.record.rejected = Some(reject);
                response
            }
        }
    }

    /// The client of this name.
    fn client<'s>(&'s self, id: &'s str) -> Option<AskingClient<'s>> {
        let registered = self.clients.iter().find(|client| client.client_id == id);
        if let Some(registered) = registered {
            return AskingClient::of_operator(registered);
        }
        let registration = self.settings.registration.as_ref()?;
        AskingClient::of_registration(id, registration, &self.sign_in.broker.roots, self.context.now)
    }
}

/// What the user can do.
fn help(reject: &Reject) -> &'static str {
    match reject.reason {
        Reason::ConsentCookie => {
            "Open the link of the application in your usual browser: a window inside another application may keep no \
             cookies."
        }
        Reason::StoreUnavailable | Reason::ProviderUnavailable => "Try again in a moment.",
        Reason::SignInLoop | Reason::AddressLimited | Reason::FailuresLimited => "Wait a minute, and try again.",
        _ => "Close this page, and begin again in the application. If that does not help, tell its developer.",
    }
}

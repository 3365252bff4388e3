//! The authorization endpoint (OAuth 2.1 section 4.1): a client asks a user, who signs in at a provider and agrees.
//!
//! `request` checks what the client asks for, and sends the browser to the consent page with the request sealed in its
//! URL. `consent` finds the user, or sends the browser to a provider or to the login page of the backend with that URL
//! as its way back (`user`), shows the page, and answers the client with a code. The token endpoint redeems it
//! (`gateway/oauth/authorization_code.rs`). Nothing is stored before. `registration` is the endpoint at which clients
//! register themselves, `pushed` the one at which they send their requests before the browser does, and `grants` the
//! page on which users end what they have granted.

mod asked;
mod browser_cookie;
mod call;
mod clients;
mod consent;
mod decision;
mod grant;
mod grants;
mod html;
mod pages;
mod parameters;
mod preview;
mod pushed;
mod registration;
mod request;
pub mod settings;
mod user;

use bytes::Bytes;
use http::{Request, Response};

use crate::gateway::cors::NotShared;
use crate::gateway::endpoints::BrowserEndpoint;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters::read as read_parameters;
use crate::tokens::authorization::pending::PendingRequest;
use crate::types::reject::{Reason, Reject};

pub(crate) use call::AuthorizationCall;
pub use call::check_page;
pub use preview::{NoPreview, Preview};
pub use pushed::push;
pub use registration::register;

impl AuthorizationCall<'_, '_> {
    /// `form`: the body of a POST, or why it was not read. Each failure is a page, because a user sees it.
    pub(super) async fn respond<B>(
        &mut self,
        endpoint: BrowserEndpoint,
        request: &Request<B>,
        form: Result<Option<Bytes>, Reject>,
    ) -> Response<Body> {
        let (form, answered) = match form {
            Ok(form) => {
                let answered = self.answer(endpoint, request, form.as_ref()).await;
                (form, answered)
            }
            Err(reject) => (None, Err(reject)),
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(reject) => {
                let again = self.again(request, form.as_ref(), &reject);
                let response =
                    pages::failed(&reject, help(&reject), again.as_deref(), self.call.context.record.request_id);
                self.call.context.record.rejected = Some(reject);
                response
            }
        };
        response.extensions_mut().insert(NotShared);
        self.count(endpoint);
        response
    }

    async fn answer<B>(
        &mut self,
        endpoint: BrowserEndpoint,
        request: &Request<B>,
        form: Option<&Bytes>,
    ) -> Result<Response<Body>, Reject> {
        match (endpoint, form) {
            (BrowserEndpoint::Authorize, _) => self.authorize(request, form).await,
            (BrowserEndpoint::Consent, None) => self.show_consent(request).await,
            (BrowserEndpoint::Consent, Some(form)) => self.decide(request, form).await,
            (BrowserEndpoint::Grants, None) => self.show_grants(request).await,
            (BrowserEndpoint::Grants, Some(form)) => self.end_grant(request, form).await,
        }
    }

    /// A link that begins the request again, if the browser has no cookie of it or took too long.
    fn again<B>(&self, request: &Request<B>, form: Option<&Bytes>, reject: &Reject) -> Option<String> {
        if !matches!(reject.reason, Reason::ConsentCookie | Reason::ConsentStale) {
            return None;
        }
        let text = match form {
            Some(form) => str::from_utf8(form).ok()?,
            None => request.uri().query()?,
        };
        let sealed = read_parameters(text).ok()?.remove("request")?;
        self.link_to(&PendingRequest::open(&sealed, &self.call.broker.roots)?)
    }

    /// Counts what came of the call, from its record.
    fn count(&self, endpoint: BrowserEndpoint) {
        let rejected = self.call.context.record.rejected.as_ref().map(|reject| reject.reason);
        match (endpoint, rejected, self.consent) {
            (BrowserEndpoint::Authorize, rejected, _) => {
                self.call.counts.count_authorization(self.registration, rejected);
            }
            (BrowserEndpoint::Consent, Some(reason), _) => self.call.counts.count_consent(Err(reason)),
            (BrowserEndpoint::Consent, None, Some(consent)) => self.call.counts.count_consent(Ok(consent)),
            // The page, or a sign-in before it, is no decision.
            (BrowserEndpoint::Consent, None, None) | (BrowserEndpoint::Grants, ..) => {}
        }
    }
}

/// What the user can do.
fn help(reject: &Reject) -> &'static str {
    match reject.reason {
        Reason::ConsentCookie => {
            "Open the link of the application in your usual browser: a window inside another application may keep no \
             cookies."
        }
        Reason::StoreUnavailable | Reason::ProviderUnavailable | Reason::ClientDocument => "Try again in a moment.",
        Reason::SignInLoop | Reason::AddressLimited | Reason::FailuresLimited => "Wait a minute, and try again.",
        _ => "Close this page, and begin again in the application. If that does not help, tell its developer.",
    }
}

//! One call of the authorization endpoint or of the consent page, and what both need: the client, the host, and the
//! answers to the client.
//!
//! [`AuthorizationCall`] is spread over `call`, `grant`, `request`, `consent`, `decision`, `grants` and `mod`. In this
//! order, each calls only those before it.

use http::{Response, StatusCode};

use super::clients::AskingClient;
use super::settings::AuthorizationSettings;
use crate::auth::client_documents::ClientDocuments;
use crate::auth::registered_clients::RegisteredClient;
use crate::gateway::context::RequestContext;
use crate::gateway::oauth::metadata;
use crate::gateway::sign_in::SignIn;
use crate::protocols::http::body::Body;
use crate::protocols::http::{parameters, respond};
use crate::tokens::authorization::client_document;
use crate::tokens::authorization::denied_clients::DeniedClients;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::RequestError;
use crate::types::reject::{Reason, Reject};

/// One call of the authorization endpoint or of the consent page.
pub(crate) struct AuthorizationCall<'c, 'r> {
    pub(crate) settings: &'c AuthorizationSettings,
    /// `[[oauth.client]]`
    pub(crate) clients: &'c [RegisteredClient],
    pub(crate) denied: &'c DeniedClients,
    /// `tokens.issuer`
    pub(crate) issuer: &'c str,
    pub(crate) sign_in: &'c SignIn,
    pub(crate) documents: &'c ClientDocuments,
    pub(crate) context: &'c mut RequestContext<'r>,
}

impl AuthorizationCall<'_, '_> {
    /// The client of this name.
    pub(super) async fn client<'s>(&'s self, id: &'s str) -> Result<AskingClient<'s>, Reject> {
        self.denied.check(id)?;
        let registered = self.clients.iter().find(|client| client.client_id == id);
        let known = match (registered, &self.settings.registration) {
            (Some(registered), _) => AskingClient::of_operator(registered),
            (None, Some(settings)) => {
                AskingClient::of_registration(id, settings, &self.sign_in.broker.roots, self.context.now)
            }
            (None, None) => None,
        };
        match (known, &self.settings.documents) {
            (Some(known), _) => Ok(known),
            (None, Some(settings)) if registered.is_none() && id.starts_with(client_document::SCHEME) => {
                let now = self.context.clock.uptime();
                // Boxed because it is rare.
                let document = Box::pin(self.documents.find(id, settings, self.context.client(), now)).await?;
                Ok(AskingClient::of_document(id, settings, &document))
            }
            (None, _) => Err(Reject::new(Reason::UnknownClient, unknown(id))),
        }
    }

    /// The client as it is now: the operator may have removed it, or changed its redirect URIs.
    pub(super) async fn client_of<'s>(&'s self, pending: &'s PendingRequest) -> Result<AskingClient<'s>, Reject> {
        let client = self.client(&pending.client_id).await?;
        if client.target(pending.request.redirect_uri.as_str()).is_none() {
            return Err(Reject::new(Reason::RedirectMismatch, "the redirect URI was removed meanwhile"));
        }
        Ok(client)
    }

    /// The cookies and the redirects are those of the issuer's host.
    pub(super) fn check_host(&self) -> Result<(), Reject> {
        let origin = self.sign_in.origin(self.context);
        if origin == Some(&*metadata::base(self.issuer)) {
            return Ok(());
        }
        Err(Reject::new(Reason::BadAuthorization, "Host is not that of tokens.issuer"))
    }

    /// An error at the redirect URI, or a page if the client could use that as an open redirector.
    pub(super) fn refuse(
        &mut self,
        error: RequestError,
        redirect_uri: &RedirectUri,
        state: Option<&str>,
        may_redirect: bool,
    ) -> Result<Response<Body>, Reject> {
        let RequestError { code, description } = error;
        let reject = Reject::new(Reason::AuthorizationRefused, format!("{code}: {description}"));
        if !may_redirect {
            return Err(reject);
        }
        let response = redirect(&redirect_uri.with_query(&error_query(error, state, self.issuer)))?;
        self.context.record.rejected = Some(reject);
        Ok(response)
    }

    /// Answers with an error. The user has seen the request, or the client is trusted to get errors.
    pub(super) async fn answer_error(
        &mut self,
        pending: &PendingRequest,
        error: RequestError,
    ) -> Result<Response<Body>, Reject> {
        let client = self.client_of(pending).await?;
        let is_seen = error.code == "access_denied";
        let may_redirect = is_seen || client.gets_errors_at(&pending.request.redirect_uri);
        self.refuse(error, &pending.request.redirect_uri, pending.request.state.as_deref(), may_redirect)
    }

    /// The path of the consent page for a sealed request.
    pub(super) fn consent_path(&self, sealed: &str) -> String {
        format!("{}?request={sealed}", self.settings.consent_page)
    }
}

fn unknown(client_id: &str) -> String {
    format!(
        "{client_id:?} is no [[oauth.client]] with redirect_uris, no client that registered itself here, and no URL of \
         oauth.client_documents"
    )
}

/// The query of an answer with an error (OAuth 2.1 section 4.1.2.1, RFC 9207).
fn error_query(error: RequestError, state: Option<&str>, issuer: &str) -> String {
    let fixed = [("error", error.code), ("error_description", error.description)];
    let state = state.map(|state| ("state", state));
    parameters::write(fixed.into_iter().chain(state).chain([("iss", issuer)]))
}

/// A redirect to the client, or to the next page.
pub(super) fn redirect(target: &str) -> Result<Response<Body>, Reject> {
    let response = respond::redirect(StatusCode::SEE_OTHER, target);
    response.ok_or_else(|| Reject::new(Reason::Internal, "the target is no header"))
}

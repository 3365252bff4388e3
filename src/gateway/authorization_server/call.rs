//! One call of the authorization endpoint or of the consent page, and what both need: the client, the host, and the
//! answers to the client.
//!
//! [`AuthorizationCall`] is spread over `call`, `user`, `grant`, `parameters`, `pushed`, `request`, `consent`,
//! `decision`, `grants` and `mod`. In this order, each calls only those before it.

use http::{HeaderMap, Response, StatusCode};

use super::clients::{AskingClient, Described, find, shortened};
use super::settings::AuthorizationSettings;
use crate::gateway::authorization_counts::{Consent, Registration};
use crate::gateway::oauth::{Call, metadata};
use crate::gateway::sign_in::{SignIn, is_host_of, is_part_of_page};
use crate::protocols::http::body::Body;
use crate::protocols::http::{parameters, respond};
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::RequestError;
use crate::tokens::authorization::{client_document, client_name, client_registration};
use crate::types::reject::{Reason, Reject};

/// One call of the authorization endpoint or of the consent page.
pub(crate) struct AuthorizationCall<'c, 'r> {
    pub(crate) call: Call<'c, 'r>,
    pub(crate) settings: &'c AuthorizationSettings,
    /// `None`: users sign in at `oauth.login_page`.
    pub(crate) sign_in: Option<&'c SignIn>,
    /// What the metrics count, as soon as it is known.
    pub(crate) registration: Registration,
    pub(crate) consent: Option<Consent>,
}

impl<'c, 'r> AuthorizationCall<'c, 'r> {
    pub(crate) fn of(call: Call<'c, 'r>, settings: &'c AuthorizationSettings, sign_in: Option<&'c SignIn>) -> Self {
        AuthorizationCall { call, settings, sign_in, registration: Registration::default(), consent: None }
    }
}

impl<'c> AuthorizationCall<'c, '_> {
    /// The client of this name.
    pub(super) async fn client<'s>(&mut self, id: &'s str) -> Result<AskingClient<'s>, Reject>
    where
        'c: 's,
    {
        self.call.endpoints.denied.check(id, &self.call.broker.roots)?;
        self.registration =
            registration_of(id, self.call.endpoints.clients.iter().any(|client| client.client_id == id));
        let roots = &self.call.broker.roots;
        let client = match find(id, &self.call.endpoints.clients, self.settings, roots, self.call.context.now) {
            Described::Here(client) => client,
            Described::Nowhere => return Err(unknown_client(id)),
            Described::AtItsUrl(settings) => {
                // Also if its document cannot be fetched.
                self.log_name(client_name::for_operators(id, false, None));
                let now = self.call.context.clock.uptime();
                // Boxed because it is rare.
                let document =
                    Box::pin(self.call.documents.find(id, settings, self.call.context.client(), now)).await?;
                AskingClient::of_document(id, settings, &document)
            }
        };
        self.name(&client, None);
        Ok(client)
    }

    /// The client as it is now: the operator may have removed it, or changed its redirect URIs.
    pub(super) async fn client_of<'s>(&mut self, pending: &'s PendingRequest) -> Result<AskingClient<'s>, Reject>
    where
        'c: 's,
    {
        let client = self.client(&pending.client_id).await?;
        let redirect_uri = client.target(pending.request.redirect_uri.as_str());
        let removed = || Reject::new(Reason::RedirectMismatch, "the redirect URI was removed meanwhile");
        self.name(&client, Some(&redirect_uri.ok_or_else(removed)?));
        Ok(client)
    }

    /// Names the client in the access log.
    pub(super) fn name(&mut self, client: &AskingClient<'_>, redirect_uri: Option<&RedirectUri>) {
        self.log_name(client.name_for_operators(redirect_uri));
    }

    fn log_name(&mut self, name: Option<&str>) {
        self.call.context.record.oauth.get_or_insert_default().client = name.map(str::to_owned);
    }

    /// Keeps for `bearward explain` what the client asks for. `resources`: as the client sent them.
    pub(super) fn keep_request(&mut self, client_id: Option<&str>, redirect_uri: Option<&str>, resources: &[String]) {
        let asked = self.call.context.record.oauth.get_or_insert_default();
        asked.ask(client_id, redirect_uri, resources.iter().map(String::as_str));
    }

    pub(super) fn check_host(&self) -> Result<(), Reject> {
        check_host(self.call.context.host(), self.call.issuer())
    }

    /// As [`check_page`].
    pub(super) fn check_page(&self, headers: &HeaderMap) -> Result<(), Reject> {
        check_page(self.call.context.host(), self.call.issuer(), headers)
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
        let response = redirect(&redirect_uri.with_query(&error_query(error, state, self.call.issuer())))?;
        self.call.context.record.rejected = Some(reject);
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

/// Also of a client that is not found: by the form of its id.
fn registration_of(client_id: &str, is_named: bool) -> Registration {
    if is_named {
        Registration::Operator
    } else if client_id.starts_with(client_document::SCHEME) {
        Registration::Document
    } else if client_id.starts_with(client_registration::PREFIX) {
        Registration::Itself
    } else {
        Registration::Unknown
    }
}

/// The consent page and the page of grants are at the issuer's host. A script or an image of a page of this host is no
/// user that reads a page.
pub fn check_page(host: Option<&str>, issuer: &str, headers: &HeaderMap) -> Result<(), Reject> {
    check_host(host, issuer)?;
    if is_part_of_page(headers) {
        return Err(Reject::new(Reason::BadAuthorization, "Sec-Fetch-Mode is not navigate"));
    }
    Ok(())
}

/// The cookies and the redirects are those of the issuer's host. `host`: that of the request.
pub(super) fn check_host(host: Option<&str>, issuer: &str) -> Result<(), Reject> {
    if is_host_of(&metadata::base(issuer), host.unwrap_or_default()) {
        return Ok(());
    }
    Err(Reject::new(Reason::BadAuthorization, "Host is not that of tokens.issuer"))
}

pub(super) fn unknown_client(client_id: &str) -> Reject {
    let client_id = shortened(client_id);
    let detail = format!(
        "{client_id:?} is no [[oauth.client]] with redirect_uris, no client that registered itself here, and no URL of \
         oauth.client_documents"
    );
    Reject::new(Reason::UnknownClient, detail)
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

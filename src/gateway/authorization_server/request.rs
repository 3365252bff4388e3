//! The authorization endpoint: what a client asks for. Until its redirect URI is known to be registered, an error is a
//! page and never a redirect (OAuth 2.1 section 4.1.2.1).

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{HeaderMap, Request, Response};

use super::asked::{Asked, Wish, asked_by};
use super::browser_cookie;
use super::call::{AuthorizationCall, redirect};
use super::consent::field_of;
use super::parameters::Parameters;
use crate::broker::BODY_LIMIT;
use crate::gateway::oauth::metadata;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::pending::{self, MAX_SEALED, PendingRequest};
use crate::types::reject::{Reason, Reject};

/// Maximum length of the sealed request and the scopes in the form of the consent page, which has 200 bytes more.
const MAX_FORM: usize = BODY_LIMIT as usize - 200;

/// Of the scopes in the form of the consent page.
fn size_of_fields(scopes: &[String]) -> usize {
    let fields: Vec<String> = scopes.iter().map(|scope| field_of(scope)).collect();
    parameters::write(fields.iter().map(|field| (&**field, "yes"))).len()
}

impl AuthorizationCall<'_, '_> {
    /// `GET` or `POST`. A program may fetch it before the browser does, so it asks for no page load, and uses nothing
    /// up.
    pub(super) async fn authorize<B>(
        &mut self,
        request: &Request<B>,
        form: Option<&Bytes>,
    ) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        let parameters = Parameters::read(request, form)?;
        self.keep_request(parameters.get("client_id"), parameters.get("redirect_uri"), &parameters.resources);
        let client = self.client(parameters.client_id()?).await?;
        let now = self.call.context.now;
        let asked = asked_by(client, &parameters, self.settings, &self.call.broker.roots, now)?;
        let Asked { client, redirect_uri, wish } = asked;
        self.name(&client, Some(&redirect_uri));
        let browser = pending::new_browser();
        let pending = match wish {
            Wish::Here(request) => PendingRequest::begin(client.id, request, &browser, now),
            Wish::Pushed(pushed) => {
                let request = &pushed.request;
                self.keep_request(Some(client.id), Some(request.redirect_uri.as_str()), &request.resources);
                pushed.in_browser(&browser, now)
            }
            Wish::Wrong(error) => {
                let may_redirect = client.gets_errors_at(&redirect_uri);
                return self.refuse(error, &redirect_uri, parameters.get("state"), may_redirect);
            }
        };
        self.to_consent(&pending, &browser, request.headers())
    }

    /// The path and query that ask for the same. `None`: only the client can ask, because it pushes its requests, or
    /// the request is long over.
    pub(super) fn link_to(&self, pending: &PendingRequest) -> Option<String> {
        if !pending.may_begin_again(self.call.context.now) {
            return None;
        }
        let asked = pending.request.parameters();
        let client = ("client_id", &*pending.client_id);
        let query = parameters::write([client].into_iter().chain(asked.iter().map(|(name, value)| (*name, &**value))));
        Some(format!("{}?{query}", self.settings.authorization_endpoint))
    }

    /// Sends the browser to the consent page, with a cookie that shows that it began the request.
    fn to_consent(
        &self,
        pending: &PendingRequest,
        browser: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Reject> {
        let sealed = self.seal(pending)?;
        let cookies = browser_cookie::set(headers, pending, browser);
        let cookies = cookies.ok_or_else(|| Reject::new(Reason::Internal, "cannot make the cookie of a request"))?;
        let target = format!("{}{}", metadata::base(self.call.issuer()), self.consent_path(&sealed));
        let mut response = redirect(&target)?;
        response.headers_mut().extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        Ok(response)
    }

    fn seal(&self, pending: &PendingRequest) -> Result<String, Reject> {
        let sealed = pending.seal(&self.call.broker.roots);
        let sealed = sealed.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
        if sealed.len() > MAX_SEALED || sealed.len() + size_of_fields(&pending.request.scopes) > MAX_FORM {
            let detail = "state, redirect_uri, resource and scope are together too long";
            return Err(Reject::new(Reason::BadAuthorization, detail));
        }
        Ok(sealed)
    }
}

//! The authorization endpoint: what a client asks for. Until its redirect URI is known to be registered, an error is a
//! page and never a redirect (OAuth 2.1 section 4.1.2.1).

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{Request, Response};

use super::browser_cookie;
use super::call::{AuthorizationCall, redirect, shortened};
use super::clients::AskingClient;
use super::settings::AuthorizationSettings;
use crate::gateway::oauth::metadata;
use crate::protocols::http::body::Body;
use crate::protocols::http::{media_type, parameters};
use crate::tokens::authorization::pending::{self, MAX_SEALED, PendingRequest};
use crate::tokens::authorization::redirect_uri::{self, RedirectUri};
use crate::tokens::authorization::request::{self, AuthorizationRequest, Offer, RequestError};
use crate::types::reject::{Reason, Reject};

/// Maximum length of the parameters, in bytes.
const MAX_PARAMETERS: usize = 8 * 1024;

/// Maximum length of a client id.
const MAX_CLIENT_ID: usize = 600;

/// The parameters of a request.
pub(super) struct Parameters {
    values: BTreeMap<String, String>,
    resources: Vec<String>,
}

impl AuthorizationCall<'_, '_> {
    /// `GET` or `POST`. A program may fetch it before the browser does, so it asks for no page load, and uses nothing
    /// up.
    pub(super) async fn authorize<B>(
        &mut self,
        request: &Request<B>,
        form: Option<&Bytes>,
    ) -> Result<Response<Body>, Reject> {
        self.sign_in.broker.throttle.count_call(self.context.client())?;
        self.check_host()?;
        let parameters = Parameters::read(request, form)?;
        self.keep_request(parameters.get("client_id"), parameters.get("redirect_uri"), &parameters.resources);
        let client = self.client(parameters.client_id()?).await?;
        let redirect_uri = redirect_of(&client, parameters.required("redirect_uri")?)?;
        self.name(&client, Some(&redirect_uri));
        let asked = match parameters.asked(&client, &redirect_uri, self.settings) {
            Ok(asked) => asked,
            Err(error) => {
                let may_redirect = client.gets_errors_at(&redirect_uri);
                return self.refuse(error, &redirect_uri, parameters.get("state"), may_redirect);
            }
        };
        let browser = pending::new_browser();
        let pending = PendingRequest::begin(client.id, asked, &browser, self.context.now);
        let sealed = self.seal(&pending)?;
        let cookies = browser_cookie::set(request.headers(), &pending, &browser);
        let cookies = cookies.ok_or_else(|| Reject::new(Reason::Internal, "cannot make the cookie of a request"))?;
        let target = format!("{}{}", metadata::base(self.issuer), self.consent_path(&sealed));
        let mut response = redirect(&target)?;
        response.headers_mut().extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        Ok(response)
    }

    fn seal(&self, pending: &PendingRequest) -> Result<String, Reject> {
        let sealed = pending.seal(&self.sign_in.broker.roots);
        let sealed = sealed.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
        if sealed.len() > MAX_SEALED {
            let detail = "state, redirect_uri, resource and scope are together too long";
            return Err(Reject::new(Reason::BadAuthorization, detail));
        }
        Ok(sealed)
    }
}

/// Where the code goes.
pub(super) fn redirect_of(client: &AskingClient<'_>, requested: &str) -> Result<RedirectUri, Reject> {
    client.target(requested).ok_or_else(|| {
        let difference = redirect_uri::difference(&client.redirect_uris, requested);
        let registered: Vec<&str> = client.redirect_uris.iter().map(RedirectUri::as_str).collect();
        let registered = registered.join(" or ");
        let requested = shortened(requested);
        let detail = format!("{difference}; the client sent {requested:?}, registered is {registered}");
        Reject::new(Reason::RedirectMismatch, detail)
    })
}

impl Parameters {
    fn read<B>(request: &Request<B>, form: Option<&Bytes>) -> Result<Self, Reject> {
        let bad = |detail: &'static str| Reject::new(Reason::BadAuthorization, detail);
        let text = match form {
            None => request.uri().query().unwrap_or_default(),
            Some(_) if !media_type::is(request.headers(), "application/x-www-form-urlencoded") => {
                return Err(bad("Content-Type is not application/x-www-form-urlencoded"));
            }
            Some(form) => str::from_utf8(form).map_err(|_| bad("the form is not UTF-8"))?,
        };
        Parameters::of(text)
    }

    /// Of a query or a form.
    pub(super) fn of(text: &str) -> Result<Self, Reject> {
        let bad = |detail: &'static str| Reject::new(Reason::BadAuthorization, detail);
        if text.len() > MAX_PARAMETERS {
            return Err(bad("the parameters are longer than 8 KiB"));
        }
        let (values, resources) = parameters::read_with_list(text, "resource").map_err(bad)?;
        let has_control = values.values().chain(&resources).any(|value| value.chars().any(char::is_control));
        if has_control {
            return Err(bad("a parameter has a control character"));
        }
        if values.contains_key("request_uri") {
            return Err(bad("request_uri is not supported"));
        }
        Ok(Parameters { values, resources })
    }

    /// What the client asks for.
    pub(super) fn asked(
        &self,
        client: &AskingClient<'_>,
        redirect_uri: &RedirectUri,
        settings: &AuthorizationSettings,
    ) -> Result<AuthorizationRequest, RequestError> {
        let offer =
            Offer { resources: &settings.resources, default: settings.default_resource, client_scopes: client.scopes };
        request::read(&self.values, &self.resources, redirect_uri.clone(), &offer)
    }

    pub(super) fn client_id(&self) -> Result<&str, Reject> {
        let client_id = self.required("client_id")?;
        if client_id.len() > MAX_CLIENT_ID {
            return Err(Reject::new(Reason::UnknownClient, "client_id is longer than 600 bytes"));
        }
        Ok(client_id)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Reject> {
        self.get(name).ok_or_else(|| Reject::new(Reason::BadAuthorization, format!("{name} is missing")))
    }
}

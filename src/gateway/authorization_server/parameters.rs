//! The parameters of an authorization request: in a query, in a form, or pushed.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;

use super::clients::AskingClient;
use super::settings::AuthorizationSettings;
use crate::protocols::http::{media_type, parameters};
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::{self, AuthorizationRequest, Offer, RequestError};
use crate::types::reject::{Reason, Reject};

/// Maximum length of a client id.
const MAX_CLIENT_ID: usize = 600;

/// Maximum length of the parameters, in bytes.
const MAX_PARAMETERS: usize = 8 * 1024;

/// `oauth.require_par`, `oauth.client.require_par`
const MUST_PUSH: RequestError = RequestError::new("invalid_request", "the request must be pushed (RFC 9126)");

/// The parameters of a request.
pub(super) struct Parameters {
    values: BTreeMap<String, String>,
    pub(super) resources: Vec<String>,
}

impl Parameters {
    pub(super) fn read<B>(request: &Request<B>, form: Option<&Bytes>) -> Result<Self, Reject> {
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

    /// The parameters of a query or a form.
    pub(super) fn of_text(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_PARAMETERS {
            return Err("the parameters are longer than 8 KiB");
        }
        let (values, resources) = parameters::read_with_list(text, "resource")?;
        let has_control = values.values().chain(&resources).any(|value| value.chars().any(char::is_control));
        if has_control {
            return Err("a parameter has a control character");
        }
        Ok(Parameters { values, resources })
    }

    /// As [`Parameters::of_text`].
    pub(super) fn of(text: &str) -> Result<Self, Reject> {
        Parameters::of_text(text).map_err(|wrong| Reject::new(Reason::BadAuthorization, wrong))
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

    /// As [`Parameters::asked`], for a request that the browser brings.
    pub(super) fn asked_by_browser(
        &self,
        client: &AskingClient<'_>,
        redirect_uri: &RedirectUri,
        settings: &AuthorizationSettings,
    ) -> Result<AuthorizationRequest, RequestError> {
        let asked = self.asked(client, redirect_uri, settings)?;
        if client.must_push || settings.requires_par {
            return Err(MUST_PUSH);
        }
        Ok(asked)
    }

    pub(super) fn client_id(&self) -> Result<&str, Reject> {
        let client_id = self.required("client_id")?;
        if client_id.len() > MAX_CLIENT_ID {
            return Err(Reject::new(Reason::UnknownClient, "client_id is longer than 600 bytes"));
        }
        Ok(client_id)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Reject> {
        self.get(name).ok_or_else(|| Reject::new(Reason::BadAuthorization, format!("{name} is missing")))
    }
}

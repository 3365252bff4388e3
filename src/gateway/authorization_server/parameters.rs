//! The parameters of an authorization request: in a query, in a form, or pushed.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;

use super::call::AuthorizationCall;
use super::clients::AskingClient;
use crate::protocols::http::{media_type, parameters};
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::request::{self, AuthorizationRequest, Offer, RequestError};
use crate::types::reject::{Reason, Reject};

/// Maximum length of the parameters, in bytes.
const MAX_PARAMETERS: usize = 8 * 1024;

/// The parameters of a request.
pub(super) struct Parameters {
    values: BTreeMap<String, String>,
    resources: Vec<String>,
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
        Parameters::of_text(text).map_err(bad)
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

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Reject> {
        self.get(name).ok_or_else(|| Reject::new(Reason::BadAuthorization, format!("{name} is missing")))
    }
}

impl AuthorizationCall<'_, '_> {
    /// What a client asks for, at a redirect URI that it has registered.
    pub(super) fn asked(
        &self,
        client: &AskingClient<'_>,
        parameters: &Parameters,
        redirect_uri: RedirectUri,
    ) -> Result<AuthorizationRequest, RequestError> {
        let offer = Offer {
            resources: &self.settings.resources,
            default: self.settings.default_resource,
            client_scopes: client.scopes,
        };
        request::read(&parameters.values, &parameters.resources, redirect_uri, &offer)
    }
}

//! The endpoints of a provider, as its discovery document names them (OpenID Connect Discovery section 3).

use serde_json::Value;

use super::settings::Provider;
use crate::auth::keyring::{DiscoveryError, Document};
use crate::auth::oauth_client::Endpoint;
use crate::protocols::url::SecureUrl;

/// An endpoint that a provider need not have.
#[derive(Clone, Debug, PartialEq)]
pub enum Optional {
    Absent,
    /// The document names one that cannot be used. What is wrong with it.
    Unusable(String),
    Usable(Endpoint),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// Where the browser goes.
    pub authorization: SecureUrl,
    pub token: Endpoint,
    pub userinfo: Optional,
    /// Where the browser goes to sign out (RP-Initiated Logout).
    pub end_session: Option<SecureUrl>,
    /// RFC 7009
    pub revocation: Optional,
    /// If true, each authorization response has the parameter `iss` (RFC 9207).
    pub sends_issuer: bool,
    /// If false, the provider does not say that it checks the proof of PKCE. It is sent anyway.
    pub has_pkce: bool,
    /// What is wrong with the endpoints that cannot be used.
    pub(super) unusable: Vec<String>,
}

impl Metadata {
    pub(super) fn read(document: &Document, provider: &Provider) -> Result<Self, DiscoveryError> {
        let place = |member| document.place(member, provider.allow_http, &provider.hosts);
        let endpoint = |member| {
            let place = place(member)?;
            Ok(place.map(|place| Endpoint { url: place.url, reach: place.reach }))
        };
        let needed = |member| endpoint(member)?.ok_or(DiscoveryError::Missing(member));
        let mut unusable = Vec::new();
        let mut optional = |member| match endpoint(member) {
            Ok(Some(endpoint)) => Optional::Usable(endpoint),
            Ok(None) => Optional::Absent,
            Err(error) => {
                unusable.push(error.to_string());
                Optional::Unusable(error.to_string())
            }
        };
        let userinfo = optional("userinfo_endpoint");
        let end_session = optional("end_session_endpoint");
        let revocation = optional("revocation_endpoint");
        let methods = document.members.get("code_challenge_methods_supported").and_then(Value::as_array);
        let sends_issuer = document.members.get("authorization_response_iss_parameter_supported");
        Ok(Metadata {
            authorization: needed("authorization_endpoint")?.url,
            token: needed("token_endpoint")?,
            userinfo,
            end_session: match end_session {
                Optional::Usable(endpoint) => Some(endpoint.url),
                Optional::Absent | Optional::Unusable(_) => None,
            },
            revocation,
            sends_issuer: sends_issuer == Some(&Value::Bool(true)),
            has_pkce: methods.is_some_and(|methods| methods.iter().any(|method| method == "S256")),
            unusable,
        })
    }
}

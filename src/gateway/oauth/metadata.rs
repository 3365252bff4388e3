//! `GET /.well-known/oauth-authorization-server` (RFC 8414): what this issuer offers, and nothing that it does not.

use http::Uri;
use serde_json::{Map, Value, json};

use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::route::KEYS_PATH;

pub fn of(issuer: &str, offered: &Endpoints) -> Value {
    let mut metadata = endpoints(&base(issuer), offered);
    metadata.insert("issuer".into(), json!(issuer));
    // Without these two a reader has to assume that there is an authorization endpoint (RFC 8414 section 2).
    metadata.entry("response_types_supported").or_insert_with(|| json!([]));
    metadata.entry("grant_types_supported").or_insert_with(|| json!([]));
    metadata.into()
}

/// Every endpoint of RFC 8414 that the gateway has, and what goes with each. `POST /user/refresh` and `DELETE /token/{tokenId}`
/// are none: they speak another protocol than RFC 6749 and RFC 7009.
fn endpoints(base: &str, offered: &Endpoints) -> Map<String, Value> {
    let mut endpoints = Map::new();
    endpoints.insert("jwks_uri".into(), json!(format!("{base}{KEYS_PATH}")));
    for (endpoint, path) in offered.on_offer() {
        let (name, authentication) = match endpoint {
            Endpoint::Token => ("token_endpoint", "token_endpoint_auth_methods_supported"),
            Endpoint::Revoke => ("revocation_endpoint", "revocation_endpoint_auth_methods_supported"),
            // Its callers show a token, for which there is no name among the methods.
            Endpoint::Introspect => ("introspection_endpoint", ""),
            // A document of its own, which is found by its resource.
            Endpoint::ProtectedResource => continue,
        };
        endpoints.insert(name.into(), json!(format!("{base}{path}")));
        if !authentication.is_empty() {
            // Clients are public: left out, a reader has to assume `client_secret_basic`.
            endpoints.insert(authentication.into(), json!(["none"]));
        }
        if endpoint == Endpoint::Token {
            endpoints.insert("grant_types_supported".into(), json!(["refresh_token"]));
        }
    }
    endpoints
}

/// The gateway's paths begin at the host, wherever the issuer is.
fn base(issuer: &str) -> String {
    let uri = issuer.parse::<Uri>().unwrap_or_default();
    match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_issuer_byte_for_byte_and_paths_from_the_host_on() {
        for (issuer, keys) in [
            ("https://gateway.example", "https://gateway.example/.well-known/jwks.json"),
            ("https://gateway.example:8443/a/", "https://gateway.example:8443/.well-known/jwks.json"),
        ] {
            let metadata = of(issuer, &Endpoints::default());
            assert_eq!((&metadata["issuer"], &metadata["jwks_uri"]), (&json!(issuer), &json!(keys)));
        }
    }
}

//! `GET /.well-known/oauth-authorization-server` (RFC 8414): what this issuer offers, and nothing that it does not.

use http::Uri;
use serde_json::{Map, Value, json};

use crate::route::KEYS_PATH;

pub fn of(issuer: &str) -> Value {
    let mut metadata = endpoints(&base(issuer));
    metadata.insert("issuer".into(), json!(issuer));
    // Without these two a reader has to assume that there is an authorization endpoint (RFC 8414 section 2).
    metadata.entry("response_types_supported").or_insert_with(|| json!([]));
    metadata.entry("grant_types_supported").or_insert_with(|| json!([]));
    metadata.into()
}

/// Every endpoint of RFC 8414 that the gateway has, and what goes with each. `POST /user/refresh` and `DELETE /token/{tokenId}`
/// are none: they speak another protocol than RFC 6749 and RFC 7009.
fn endpoints(base: &str) -> Map<String, Value> {
    let mut endpoints = Map::new();
    endpoints.insert("jwks_uri".into(), json!(format!("{base}{KEYS_PATH}")));
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
            let metadata = of(issuer);
            assert_eq!((&metadata["issuer"], &metadata["jwks_uri"]), (&json!(issuer), &json!(keys)));
        }
    }
}

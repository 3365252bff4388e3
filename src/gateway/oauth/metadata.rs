//! `GET /.well-known/oauth-authorization-server` (RFC 8414), also at `/.well-known/openid-configuration`: the metadata
//! of this issuer. It names only what is switched on.

use std::collections::BTreeSet;

use http::Uri;
use serde_json::{Map, Value, json};

use crate::gateway::authorization_server::settings::AuthorizationSettings;
use crate::gateway::endpoints::{ClientEndpoint, Endpoints};
use crate::gateway::route_table::KEYS_PATH;
use crate::tokens::dpop::PROOF_ALGORITHMS;

/// RFC 9126 section 5.
const PAR: &str = "pushed_authorization_request_endpoint";

/// `binds`: tokens can be bound to the certificate of their client (`tokens.certificate_bound`, or that of a client).
pub fn of(issuer: &str, offered: &Endpoints, binds: bool) -> Value {
    let mut metadata = endpoints(&base(issuer), offered);
    if binds {
        // RFC 8705 section 3.3.
        metadata.insert("tls_client_certificate_bound_access_tokens".into(), json!(true));
    }
    if let Some(url) = &offered.mtls_url {
        // RFC 8705 section 5: all that clients authenticate at.
        let alias = |(endpoint, path)| (names(endpoint).0.to_owned(), json!(format!("{url}{path}")));
        let aliases = offered.for_clients().map(alias);
        let pushed = offered
            .authorization
            .iter()
            .map(|settings| (PAR.to_owned(), json!(format!("{url}{}", settings.par_endpoint))));
        metadata.insert("mtls_endpoint_aliases".into(), Value::Object(aliases.chain(pushed).collect()));
    }
    metadata.insert("issuer".into(), json!(issuer));
    if let Some(settings) = offered.authorization.as_deref() {
        add_authorization(&mut metadata, &base(issuer), settings);
    }
    // Without these two, clients must assume that there is an authorization endpoint (RFC 8414 section 2).
    metadata.entry("response_types_supported").or_insert_with(|| json!([]));
    metadata.entry("grant_types_supported").or_insert_with(|| json!([]));
    metadata.into()
}

/// What clients need to know to ask users. `offline_access` is never listed: many clients then ask for it, and for
/// consent each time.
fn add_authorization(metadata: &mut Map<String, Value>, base: &str, settings: &AuthorizationSettings) {
    let endpoint = format!("{base}{}", settings.authorization_endpoint);
    metadata.insert("authorization_endpoint".into(), json!(endpoint));
    metadata.insert(PAR.into(), json!(format!("{base}{}", settings.par_endpoint)));
    metadata.insert("require_pushed_authorization_requests".into(), json!(settings.requires_par));
    metadata.insert("response_types_supported".into(), json!(["code"]));
    metadata.insert("response_modes_supported".into(), json!(["query"]));
    metadata.insert("code_challenge_methods_supported".into(), json!(["S256"]));
    metadata.insert("authorization_response_iss_parameter_supported".into(), json!(true));
    if settings.documents.is_some() {
        metadata.insert("client_id_metadata_document_supported".into(), json!(true));
    }
    if let Some(registration) = &settings.registration {
        let endpoint = format!("{base}{}", registration.endpoint);
        metadata.insert("registration_endpoint".into(), json!(endpoint));
    }
    let scopes: BTreeSet<&String> = settings.resources.iter().flat_map(|resource| &resource.scopes).collect();
    if !scopes.is_empty() {
        metadata.insert("scopes_supported".into(), json!(scopes));
    }
}

/// The endpoints that RFC 8414 has names for. `POST /user/refresh` and `DELETE /token/{tokenId}` are not among them:
/// their protocol is not that of RFC 6749 and RFC 7009.
fn endpoints(base: &str, offered: &Endpoints) -> Map<String, Value> {
    let mut endpoints = Map::new();
    endpoints.insert("jwks_uri".into(), json!(format!("{base}{KEYS_PATH}")));
    for (endpoint, path) in offered.for_clients() {
        let (name, authentication) = names(endpoint);
        endpoints.insert(name.into(), json!(format!("{base}{path}")));
        let methods = match endpoint {
            // The name of a type of token stands for a token as the credential (RFC 8414 section 2).
            ClientEndpoint::Introspect if offered.resource_servers.is_empty() => vec!["Bearer"],
            ClientEndpoint::Introspect => vec!["Bearer", "client_secret_basic"],
            // Without this, clients must assume `client_secret_basic`.
            ClientEndpoint::Token | ClientEndpoint::Revoke => offered.client_methods(),
        };
        endpoints.insert(authentication.into(), json!(methods));
        if methods.contains(&"private_key_jwt") {
            let name = authentication.replace("_methods_", "_signing_alg_values_");
            endpoints.insert(name, json!(offered.assertion_algorithms()));
        }
        if endpoint == ClientEndpoint::Token {
            endpoints.insert("grant_types_supported".into(), json!(offered.grant_types()));
            let algorithms: Vec<&str> = PROOF_ALGORITHMS.split(' ').collect();
            endpoints.insert("dpop_signing_alg_values_supported".into(), json!(algorithms));
        }
    }
    endpoints
}

/// The names of an endpoint and of its methods of authentication.
fn names(endpoint: ClientEndpoint) -> (&'static str, &'static str) {
    match endpoint {
        ClientEndpoint::Token => ("token_endpoint", "token_endpoint_auth_methods_supported"),
        ClientEndpoint::Revoke => ("revocation_endpoint", "revocation_endpoint_auth_methods_supported"),
        ClientEndpoint::Introspect => ("introspection_endpoint", "introspection_endpoint_auth_methods_supported"),
    }
}

/// The beginning of the URLs of the gateway's paths: its scheme and host, also if the issuer has a path.
pub fn base(issuer: &str) -> String {
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
    fn issuer_is_unchanged_and_paths_begin_at_the_host() {
        for (issuer, keys) in [
            ("https://gateway.example", "https://gateway.example/.well-known/jwks.json"),
            ("https://gateway.example:8443/a/", "https://gateway.example:8443/.well-known/jwks.json"),
        ] {
            let metadata = of(issuer, &Endpoints::default(), false);
            assert_eq!((&metadata["issuer"], &metadata["jwks_uri"]), (&json!(issuer), &json!(keys)));
        }
    }

    #[test]
    fn only_the_token_endpoint_exchanges_refresh_tokens() {
        let path = || Some("/oauth".to_owned());
        let none = Endpoints::default();
        for (offered, grants) in [
            (Endpoints { token_endpoint: path(), ..none.clone() }, json!(["refresh_token"])),
            (Endpoints { revocation_endpoint: path(), ..none.clone() }, json!([])),
            (Endpoints { introspection_endpoint: path(), ..none.clone() }, json!([])),
            (none, json!([])),
        ] {
            assert_eq!(of("https://gateway.example", &offered, false)["grant_types_supported"], grants);
        }
    }
}

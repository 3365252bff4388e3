//! Envoy's configuration file: its `jwt_authn` filter, with the cache of verified tokens on.

use std::fs;
use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use crate::Outcome;
use crate::keys::{AUDIENCE, SHARED_SECRET, issuer};
use crate::peer_setup::{PeerSetup, Ports};

/// Tokens in the cache: more than any scenario sends again and again.
const CACHE_SIZE: u32 = 20_000;

/// As JSON. Each listener has one provider, so that Envoy evaluates as few rules per request as possible. It makes no
/// request id and sets no headers of its own, as the other peers do not.
pub fn envoy(ports: &Ports, setup: &PeerSetup<'_>) -> Outcome<String> {
    let mut listeners = Vec::new();
    for (address, algorithm) in [
        (ports.plain, Algorithm::ES256),
        (ports.rs256, Algorithm::RS256),
        (ports.hs256, Algorithm::HS256),
        (ports.eddsa, Algorithm::EdDSA),
    ] {
        let filters = filters(&provider(algorithm, setup)?);
        listeners.push(listener(address, &json!({ "filters": filters })));
    }
    let filters = filters(&provider(Algorithm::ES256, setup)?);
    let encrypted = json!({ "filters": filters, "transport_socket": transport_socket(setup) });
    listeners.push(listener(ports.encrypted, &encrypted));
    let endpoint = json!({ "endpoint": { "address": socket(setup.origin) } });
    let most = json!({ "max_connections": 10_000, "max_pending_requests": 10_000, "max_requests": 20_000 });
    let origin = json!({
        "name": "origin",
        "type": "STATIC",
        "circuit_breakers": { "thresholds": [most] },
        "load_assignment": { "cluster_name": "origin", "endpoints": [{ "lb_endpoints": [endpoint] }] },
    });
    Ok(json!({ "static_resources": { "listeners": listeners, "clusters": [origin] } }).to_string())
}

fn listener(address: SocketAddr, chain: &Value) -> Value {
    json!({ "address": socket(address), "filter_chains": [chain] })
}

fn socket(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

/// The issuer of the algorithm, with its keys.
fn provider(algorithm: Algorithm, setup: &PeerSetup<'_>) -> Outcome<Value> {
    let keys = match algorithm {
        Algorithm::HS256 => {
            let secret = URL_SAFE_NO_PAD.encode(SHARED_SECRET);
            json!({ "keys": [{ "kty": "oct", "alg": "HS256", "k": secret }] }).to_string()
        }
        other => fs::read_to_string(setup.keys.jwks_file(other))?,
    };
    Ok(json!({
        "issuer": issuer(algorithm),
        "audiences": [AUDIENCE],
        "forward": true,
        "local_jwks": { "inline_string": keys },
        "jwt_cache_config": { "jwt_cache_size": CACHE_SIZE },
    }))
}

fn filters(provider: &Value) -> Value {
    let rules = json!([
        { "match": { "prefix": "/public/" } },
        { "match": { "prefix": "/" }, "requires": { "provider_name": "issuer" } },
    ]);
    let tokens = typed(
        "filters.http.jwt_authn.v3.JwtAuthentication",
        &json!({
            "providers": { "issuer": provider },
            "rules": rules,
        }),
    );
    let router = typed("filters.http.router.v3.Router", &json!({ "suppress_envoy_headers": true }));
    let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "origin" } }]);
    let manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        &json!({
            "stat_prefix": "http",
            "generate_request_id": false,
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes }] },
            "http_filters": [
                { "name": "envoy.filters.http.jwt_authn", "typed_config": tokens },
                { "name": "envoy.filters.http.router", "typed_config": router },
            ],
        }),
    );
    json!([{ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }])
}

fn transport_socket(setup: &PeerSetup<'_>) -> Value {
    let file = |name: &str| json!({ "filename": setup.keys.folder().join(name) });
    let certificate = json!({ "certificate_chain": file("certificate.pem"), "private_key": file("key.pem") });
    let context = typed(
        "transport_sockets.tls.v3.DownstreamTlsContext",
        &json!({
            "common_tls_context": { "alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [certificate] },
        }),
    );
    json!({ "name": "envoy.transport_sockets.tls", "typed_config": context })
}

/// The settings of an extension, with the name of their type.
fn typed(name: &str, settings: &Value) -> Value {
    let mut settings = settings.clone();
    settings["@type"] = format!("type.googleapis.com/envoy.extensions.{name}").into();
    settings
}

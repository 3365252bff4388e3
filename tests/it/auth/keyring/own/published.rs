//! `/.well-known/jwks.json` and `/.well-known/oauth-authorization-server`.

use bytes::Bytes;
use http::Method;

use super::*;
use crate::support::gateway::ISSUER;

const KEYS: &str = "/.well-known/jwks.json";
const METADATA: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

#[tokio::test]
async fn keys_and_metadata_are_public_and_read_only() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for client in gateway.clients() {
        for path in [KEYS, METADATA, OPENID] {
            let response = client.get(path).await;
            assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
            assert_eq!(response.header("cache-control"), Some("public, max-age=600"), "{response:?}");
            let head = client.send(Method::HEAD, path, Bytes::new()).await;
            assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
            let posted = client.post(path, &json!({})).await;
            posted.assert_rejected(405, "invalid_request");
            assert_eq!(posted.header("allow"), Some("GET, HEAD"));
        }
    }
    assert_eq!(upstream.seen().len(), 0, "the backend received no request");
}

#[tokio::test]
async fn the_metadata_lists_only_configured_endpoints() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let metadata = gateway.client().get(METADATA).await.json();
    assert_eq!(
        metadata,
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}{KEYS}"),
            "response_types_supported": [],
            "grant_types_supported": [],
        })
    );

    let more = "[oauth]\ntoken_endpoint = \"/t\"\nrevocation_endpoint = \"/r\"\nintrospection_endpoint = \"/i\"\n\
                resource = \"https://api.example\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    assert_eq!(
        gateway.client().get(METADATA).await.json(),
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}{KEYS}"),
            "token_endpoint": format!("{ISSUER}/t"),
            "token_endpoint_auth_methods_supported": ["none"],
            "grant_types_supported": ["refresh_token"],
            "dpop_signing_alg_values_supported":
                ["ES256", "ES384", "EdDSA", "Ed25519", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
            "revocation_endpoint": format!("{ISSUER}/r"),
            "revocation_endpoint_auth_methods_supported": ["none"],
            "introspection_endpoint": format!("{ISSUER}/i"),
            "introspection_endpoint_auth_methods_supported": ["Bearer"],
            "response_types_supported": [],
        })
    );
}

/// Clients that know only OpenID Connect Discovery find the same document.
#[tokio::test]
async fn the_metadata_is_also_at_the_path_of_openid() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let metadata = gateway.client().get(METADATA).await.json();
    assert_eq!(gateway.client().get(OPENID).await.json(), metadata);

    let route = format!("[[route]]\npath = \"{OPENID}\"\npublic = true\n[[route]]\npath = \"/\"\n");
    let provider = Gateway::with_config(&upstream, &route);
    assert_eq!(provider.client().get(OPENID).await.status, 200);
    assert_eq!(upstream.only_request().uri, OPENID, "the backend is an OpenID provider");
}

/// The metadata of an issuer with a path has that path as a suffix (RFC 8414 section 3.1). Other paths go to the
/// backend.
#[tokio::test]
async fn well_known_paths_win_over_routes_and_no_other_path_does() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "").replace(ISSUER, &format!("{ISSUER}/shop"));
    let text = format!("{text}\n[[route]]\npath = \"/.well-known/\"\nupstream = \"backend\"\npublic = true\n");
    let gateway = Gateway::from_text(text);
    let metadata = gateway.client().get(&format!("{METADATA}/shop")).await.json();
    assert_eq!(metadata["issuer"], format!("{ISSUER}/shop"));
    assert_eq!(metadata["jwks_uri"], format!("{ISSUER}{KEYS}"));
    assert!(gateway.client().get(KEYS).await.json()["keys"].is_array());
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(gateway.client().get(METADATA).await.status, 200);
    assert_eq!(upstream.seen().len(), 1, "this path goes to the backend");
}

/// A client that fetched the keys just before the next one was published must fetch it before it signs.
#[tokio::test]
async fn keys_may_be_cached_for_half_of_key_ahead() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "key_ahead = \"2m\"");
    let response = gateway.client().get(KEYS).await;
    assert_eq!(response.header("cache-control"), Some("public, max-age=60"));
}

//! `/.well-known/jwks.json` and `/.well-known/oauth-authorization-server`: public, and what they say is so.

use bytes::Bytes;
use http::Method;

use super::*;
use crate::support::gateway::ISSUER;

const KEYS: &str = "/.well-known/jwks.json";
const METADATA: &str = "/.well-known/oauth-authorization-server";

#[tokio::test]
async fn both_are_for_everybody_and_only_to_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for client in gateway.clients() {
        for path in [KEYS, METADATA] {
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
    assert_eq!(upstream.seen().len(), 0, "no upstream was asked");
}

#[tokio::test]
async fn the_metadata_names_what_is_there_and_nothing_else() {
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

    let more = "[oauth]\ntoken_endpoint = \"/t\"\nrevocation_endpoint = \"/r\"\nintrospection_endpoint = \"/i\"\nresource = \"https://api.example\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    assert_eq!(
        gateway.client().get(METADATA).await.json(),
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}{KEYS}"),
            "token_endpoint": format!("{ISSUER}/t"),
            "token_endpoint_auth_methods_supported": ["none"],
            "grant_types_supported": ["refresh_token"],
            "revocation_endpoint": format!("{ISSUER}/r"),
            "revocation_endpoint_auth_methods_supported": ["none"],
            "introspection_endpoint": format!("{ISSUER}/i"),
            "response_types_supported": [],
        })
    );
}

/// An issuer with a path has its metadata behind it (RFC 8414 section 3.1); what lies beside is the upstream's.
#[tokio::test]
async fn no_route_shadows_them_and_they_shadow_nothing_else() {
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
    assert_eq!(upstream.seen().len(), 1, "that one is of somebody else");
}

/// Whoever fetched the keys a moment before the next was published has it before it signs.
#[tokio::test]
async fn they_may_be_kept_for_half_the_time_that_a_key_is_published_ahead() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "key_ahead = \"2m\"");
    let response = gateway.client().get(KEYS).await;
    assert_eq!(response.header("cache-control"), Some("public, max-age=60"));
}

//! The metadata of a protected resource (RFC 9728), and how a client finds it.

use bearward::tokens::dpop::PROOF_ALGORITHMS;
use http::Method;
use serde_json::json;

use crate::support::{Gateway, Upstream};

const RESOURCE: &str = r#"
[oauth]
resource = "https://api.example/v1"
scopes_supported = ["orders:read"]
[[route]]
path = "/"
[[route]]
path = "/scoped"
scopes = ["orders:read"]
"#;
const PATH: &str = "/.well-known/oauth-protected-resource/v1";

#[tokio::test]
async fn a_rejected_client_finds_the_resource_metadata() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, RESOURCE);
    let url = format!("resource_metadata=\"https://api.example{PATH}\"");
    let response = gateway.client().get("/").await;
    response.assert_rejected(401, "unauthorized");
    assert_eq!(response.header("www-authenticate"), Some(format!("Bearer realm=\"bearward\", {url}").as_str()));
    let pair = gateway.issue("alice", "").await;
    for (client, path) in [(gateway.client().bearer("x"), "/"), (gateway.client().bearer(&pair.access), "/scoped")] {
        let response = client.get(path).await;
        let challenge = response.header("www-authenticate").expect("a challenge").to_owned();
        assert!(challenge.contains(&url) && challenge.contains(", error=\""), "{challenge}");
    }

    for client in gateway.clients() {
        let response = client.get(PATH).await;
        assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
        assert_eq!(response.header("cache-control"), Some("public, max-age=600"));
        let expected = json!({
            "resource": "https://api.example/v1",
            "authorization_servers": ["https://gateway.example"],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": PROOF_ALGORITHMS.split(' ').collect::<Vec<_>>(),
            "scopes_supported": ["orders:read"],
        });
        assert_eq!(response.json(), expected);
    }
    let response = gateway.client().send(Method::HEAD, PATH, "".into()).await;
    assert_eq!((response.status.as_u16(), response.body.len()), (200, 0));
    let response = gateway.client().send(Method::POST, PATH, "".into()).await;
    assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("GET, HEAD")));
    // The path of another resource, at which clients look next.
    let response = gateway.client().get("/.well-known/oauth-protected-resource").await;
    assert_eq!(response.json()["resource"], "https://api.example/v1", "it is the only one");
    assert!(upstream.seen().is_empty());
}

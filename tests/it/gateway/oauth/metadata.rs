//! The metadata of a protected resource (RFC 9728), and the way that a client finds it.

use http::Method;
use serde_json::json;

use crate::support::{Gateway, Upstream};

const RESOURCE: &str = "[oauth]\nresource = \"https://api.example/v1\"\nscopes_supported = [\"orders:read\"]\n[[route]]\npath = \"/\"\n[[route]]\npath = \"/scoped\"\nscopes = [\"orders:read\"]\n";
const PATH: &str = "/.well-known/oauth-protected-resource/v1";

#[tokio::test]
async fn a_client_without_a_token_is_led_to_the_metadata() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, RESOURCE);
    let url = format!("resource_metadata=\"https://api.example{PATH}\"");
    let answer = gateway.client().get("/").await;
    answer.refused(401, "unauthorized");
    assert_eq!(answer.header("www-authenticate"), Some(format!("Bearer realm=\"bearward\", {url}").as_str()));
    let pair = gateway.issue("alice", "").await;
    for (client, path) in [(gateway.client().bearer("x"), "/"), (gateway.client().bearer(&pair.access), "/scoped")] {
        let answer = client.get(path).await;
        let challenge = answer.header("www-authenticate").expect("a challenge").to_owned();
        assert!(challenge.contains(&url) && challenge.contains(", error=\""), "{challenge}");
    }

    for client in gateway.clients() {
        let answer = client.get(PATH).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some("application/json")));
        assert_eq!(answer.header("cache-control"), Some("public, max-age=600"));
        let expected = json!({
            "resource": "https://api.example/v1",
            "authorization_servers": ["https://gateway.example"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["orders:read"],
        });
        assert_eq!(answer.json(), expected);
    }
    let answer = gateway.client().send(Method::HEAD, PATH, "".into()).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    let answer = gateway.client().send(Method::POST, PATH, "".into()).await;
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(gateway.client().get("/.well-known/oauth-protected-resource").await.status, 401, "another resource's");
    assert!(upstream.seen().is_empty());
}

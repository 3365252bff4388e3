//! The admin listener: paths, methods and the admin token.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::support::{Client, Gateway, Upstream};

const OPEN: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

#[tokio::test]
async fn probes_and_scrapers_need_no_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let client = Client::http1(gateway.admin_address()).host("localhost");
    for path in OPEN {
        assert_eq!(client.get(path).await.status, 200, "{path}");
        for method in [Method::POST, Method::DELETE, Method::PUT] {
            let answer = client.send(method, path, Bytes::new()).await;
            assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("GET, HEAD")), "{path}");
        }
    }
    assert_eq!(client.get("/healthz").await.json(), json!({ "status": "alive" }));
    assert_eq!(client.get("/readyz").await.json(), json!({ "status": "ready" }));
}

/// RFC 9110 section 9.3.2: as GET, without the body. Load balancers and uptime checks send HEAD.
#[tokio::test]
async fn head_has_the_fields_of_get_and_no_body() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let client = Client::http1(gateway.admin_address()).host("localhost");
    let calls = ["/admin/v1/tokens?subject=alice", "/admin/v1/keys", "/admin/v1/certificates", "/admin/v1/upstreams"];
    let open = OPEN.map(|path| (client.clone(), path)).into_iter();
    for (client, path) in open.chain(calls.map(|path| (gateway.admin_client(), path))) {
        let got = client.get(path).await;
        let head = client.send(Method::HEAD, path, Bytes::new()).await;
        assert_eq!((head.status, head.text().as_str()), (got.status, ""), "{path}: {head:?}");
        assert_eq!((got.status.as_u16(), head.header("content-type")), (200, got.header("content-type")), "{path}");
        // The metrics change meanwhile.
        if path != "/metrics" {
            assert_eq!(head.header("content-length"), Some(&*got.body.len().to_string()), "{path}");
        }
    }
    assert_eq!(client.send(Method::HEAD, "/admin/v1/keys", Bytes::new()).await.status, 401);
    let admin = gateway.admin_client();
    assert_eq!(admin.send(Method::HEAD, "/admin/v1/reload", Bytes::new()).await.status, 405);
    assert_eq!(admin.send(Method::HEAD, "/admin/v1/stats/stream", Bytes::new()).await.text(), "");
}

#[tokio::test]
async fn all_other_paths_require_the_admin_token() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nwrong_tokens = 0\n"));
    let user = gateway.issue("alice", "token:revoke admin").await;
    let client = || Client::http1(gateway.admin_address()).host("localhost");
    let token = gateway.file("admin.token").trim().to_owned();
    let header = |value: &str| client().header("authorization", value);
    for client_without_token in [
        client(),
        client().bearer(""),
        client().bearer("wrong"),
        client().bearer(&token[1..]),
        client().bearer(&format!("{token}x")),
        client().bearer(&user.access),
        header(&token),
        header(&format!("Basic {token}")),
        client().bearer("wrong").bearer(&token),
        client().bearer(&token).bearer(&token),
    ] {
        for (method, path) in [
            (Method::POST, "/admin/v1/tokens".to_owned()),
            (Method::GET, "/admin/v1/subjects/alice/tokens".into()),
            (Method::DELETE, format!("/admin/v1/tokens/{}", user.token_id)),
            (Method::DELETE, "/admin/v1/subjects/alice/tokens".into()),
            (Method::POST, "/admin/v1/revocations".into()),
            (Method::GET, "/admin/v1/nothing".into()),
            (Method::GET, "/page".into()),
        ] {
            let answer = client_without_token.send(method, &path, Bytes::from_static(br#"{"sub":"alice"}"#)).await;
            answer.assert_rejected(401, "unauthorized");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"bearward\""));
        }
    }
    assert_eq!(gateway.status_of(&user.access).await, 200, "nothing was revoked");
    let any_case = header(&format!("bearer {token}")).get("/admin/v1/subjects/alice/tokens").await;
    assert_eq!(any_case.json()["tokens"].as_array().map(Vec::len), Some(1), "schemes are case-insensitive (RFC 9110)");
}

#[tokio::test]
async fn other_methods_and_paths_are_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let admin = gateway.admin_client();
    for (path, allowed) in [
        ("/admin/v1/tokens", "GET, HEAD, POST"),
        ("/admin/v1/tokens/x", "DELETE"),
        ("/admin/v1/tokens/ended", "GET, HEAD"),
        ("/admin/v1/subjects/alice/tokens", "GET, HEAD, DELETE"),
        ("/admin/v1/revocations", "POST"),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            if !allowed.contains(method.as_str()) {
                let answer = admin.send(method.clone(), path, Bytes::new()).await;
                assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some(allowed)), "{method} {path}");
            }
        }
    }
    for path in [
        "/page",
        "/page/",
        "/page/../page/page.css",
        "/admin",
        "/admin/v1",
        "/admin/v1/",
        "/admin/v1/tokens/",
        "/admin/v2/tokens",
        "/user/refresh",
    ] {
        let answer = admin.get(path).await;
        assert!([404, 405].contains(&answer.status.as_u16()), "{path}: {answer:?}");
    }
    assert!(upstream.seen().is_empty(), "the admin listener forwards nothing to an upstream");
}

#[tokio::test]
async fn the_public_listener_does_not_serve_admin_paths() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let admin_token = gateway.file("admin.token").trim().to_owned();
    for path in OPEN.into_iter().chain(["/admin/v1/subjects/alice/tokens"]) {
        gateway.client().get(path).await.assert_rejected(401, "unauthorized");
        gateway.client().bearer(&admin_token).get(path).await.assert_rejected(401, "invalid_token");
        let answer = gateway.client().bearer(&pair.access).get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "hello"), "the upstream serves the path");
    }
    assert_eq!(upstream.seen().len(), 4);
}

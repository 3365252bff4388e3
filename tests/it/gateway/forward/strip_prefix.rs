//! `route.strip_prefix`: which path the backend gets, what returns with the prefix, and what cannot be reached with it.

use std::sync::Arc;
use std::sync::Mutex;

use http::{Request, Response, Version};
use hyper::body::Incoming;

use crate::support::client::send_raw;
use crate::support::connection;
use crate::support::{Backend, Gateway, Upstream};

const ROUTES: &str = "
[[route]]
path = \"/api\"
public = true
strip_prefix = \"/api\"
[[route]]
path = \"/shop/v1/private/\"
strip_prefix = \"/shop/v1\"
[[route]]
path = \"/Case\"
ignore_case = true
public = true
strip_prefix = \"/Case\"
[[route]]
path = \"/plain\"
public = true
";

#[tokio::test]
async fn the_backend_gets_the_rest_of_the_path() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::with_config(&upstream, &format!("protocol = \"{protocol}\"\n{ROUTES}"));
        let pair = gateway.issue("alice", "").await;
        for client in gateway.clients() {
            for (target, expected, prefix) in [
                ("/api/orders/7?next=/api/a", "/orders/7?next=/api/a", Some("/api")),
                ("/api", "/", Some("/api")),
                ("/api?a=1", "/?a=1", Some("/api")),
                ("/api/", "/", Some("/api")),
                ("/%61pi/%7Ea", "/%7Ea", Some("/api")),
                ("/api/api", "/api", Some("/api")),
                ("/cASE/a", "/a", Some("/Case")),
                ("/shop/v1/private/a", "/private/a", Some("/shop/v1")),
                ("/plain/api", "/plain/api", None),
            ] {
                let client = client.clone().bearer(&pair.access).header("X-Forwarded-Prefix", "/evil");
                let client = client.header("X_Forwarded_Prefix", "/evil");
                assert_eq!(client.get(target).await.status, 200, "{target}");
                let seen = upstream.seen().pop().expect("it arrived");
                assert_eq!((seen.target().as_str(), seen.header("x-forwarded-prefix")), (expected, prefix), "{target}");
                assert!(seen.header("x_forwarded_prefix").is_none());
            }
        }
    }
}

/// No encoding reaches another path of the backend than the one that the route protects.
#[tokio::test]
async fn ambiguous_paths_are_rejected_before_the_prefix_is_removed() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    for target in [
        "/api//evil.example/a",
        "//api/evil.example",
        "/api/%2Fevil.example",
        "/api%2F%2Fevil.example",
        "/api%2fa",
        "/%2561pi/a",
        "/api%252f..",
        "/api/..",
        "/api/../plain",
        "/api/%2e%2e/plain",
        "/api/..;/plain",
        "/api;x/a",
        "/api/.",
        "/api/%5c%5cevil.example",
        "/api\\evil",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n");
        let response = send_raw(gateway.address(), request.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{target}: {response}");
    }
    for target in ["/apis", "/ap", "/shop/v1", "/shop"] {
        assert_eq!(gateway.client().get(target).await.status, 404, "{target}");
    }
    assert_eq!(gateway.client().get("/shop/v1/private/a").await.status, 401);
    assert!(upstream.seen().is_empty());
}

/// The prefix may hide a path of the gateway itself, which then is one of the backend.
#[tokio::test]
async fn own_calls_keep_their_paths() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &ROUTES.replace("/api", "/user"));
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
    assert!(upstream.seen().is_empty());
    assert_eq!(gateway.client().get("/user/user/refresh").await.status, 200);
    assert_eq!(upstream.seen()[0].target(), "/user/refresh");
}

type Fields = Arc<Mutex<Vec<(&'static str, String)>>>;

#[tokio::test]
async fn redirects_and_cookies_lead_below_the_prefix() {
    let fields = Fields::default();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let sent = fields.clone();
        let backend = Backend::start(version, move |_: Request<Incoming>| {
            let mut response = Response::builder().status(302);
            for (name, value) in sent.lock().expect("unpoisoned").iter() {
                response = response.header(*name, value);
            }
            let response = response.body(connection::full("moved")).expect("a response");
            async move { response }
        });
        let backend = backend.await;
        let address = backend.address.to_string();
        let text = Gateway::config_text(&address, &format!("{}\n{ROUTES}", backend.protocol()));
        for (rewrites, gateway) in [
            (true, Gateway::from_text(text.clone())),
            (
                false,
                Gateway::from_text(
                    text.replace("[[route]]\npath = \"/api\"", "rewrite_redirects = false\n[[route]]\npath = \"/api\""),
                ),
            ),
        ] {
            for (name, value, expected) in [
                ("location", "/login?a=/b", "/api/login?a=/b"),
                ("location", "/api/login", "/api/login"),
                ("location", "login", "login"),
                ("location", "//evil.example/", "//evil.example/"),
                ("location", "https://login.example/", "https://login.example/"),
                ("refresh", "0; url=/a", "0; url=/api/a"),
                ("content-location", "/a", "/api/a"),
                ("set-cookie", "a=1; Path=/app; Secure", "a=1; Path=/api/app; Secure"),
                ("set-cookie", "__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure"),
            ] {
                *fields.lock().expect("unpoisoned") = vec![(name, value.to_owned())];
                for client in gateway.clients() {
                    let expected = if rewrites { expected } else { value };
                    assert_eq!(client.get("/api/x").await.header(name), Some(expected), "{version:?} {rewrites}");
                    assert_eq!(client.get("/plain").await.header(name), Some(value), "{version:?}: no prefix");
                }
            }
        }
    }
}

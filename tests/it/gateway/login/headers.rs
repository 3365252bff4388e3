//! The headers between the gateway and the backend: clients can neither send nor see them.

use serde_json::json;

use super::*;
use crate::support::Upstream;
use crate::support::tokens::claims_of;

/// The headers are for the backend and the gateway only. Clients can neither send nor see them, on any route.
#[tokio::test]
async fn login_headers_are_removed_both_ways_on_every_route() {
    let head = format!("{JSON}{ALICE}X-BEARWARD-SCOPE: a\r\nx-bearward-claims: {{}}\r\nx-bearward-other: kept\r\n");
    let (upstream, heads) = backend(response_text("200 OK", &head.replace("x-bearward-other: kept\r\n", ""), "{}"));
    let gateway = gateway(upstream.address, "");
    let pair = gateway.issue("bob", "").await;
    let spellings = ["X-Bearward-Subject", "x_bearward_subject", "X.Bearward.Scope", "x-bearward_claims"];
    for path in ["/public/a", "/private", "/login"] {
        let client =
            spellings.iter().fold(gateway.client().bearer(&pair.access), |client, name| client.header(name, "mallory"));
        // `Client` checks that no response has them.
        let response = client.get(path).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(
            response.json().as_object().expect("an object").is_empty(),
            path != "/login",
            "only a login is captured"
        );
    }
    let heads = heads.lock().expect("unpoisoned");
    assert_eq!(heads.len(), 3, "one request for each path");
    for head in heads.iter() {
        assert!(!head.contains("mallory"), "{head}");
    }
}

#[tokio::test]
async fn login_headers_may_be_listed_in_connection() {
    let (upstream, _) =
        backend(response_text("200 OK", &format!("{JSON}{ALICE}connection: x-bearward-subject\r\n"), "{}"));
    let gateway = gateway(upstream.address, "");
    assert_eq!(gateway.status_of(&TokenPair::from_json(&log_in(&gateway).await.json()).access).await, 200);
}

#[tokio::test]
async fn a_login_request_accepts_no_encoding_range_or_upgrade() {
    let (upstream, heads) = backend(response_text("401 No", "", ""));
    let gateway = gateway(upstream.address, "");
    let client = gateway.client().header("accept-encoding", "gzip, br").header("range", "bytes=0-1");
    let client = client.header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(client.get("/login").await.status, 401);
    assert_eq!(client.get("/public/").await.status, 401);
    let heads = heads.lock().expect("unpoisoned");
    assert!(heads[0].contains("accept-encoding: identity\r\n"), "{heads:?}");
    assert!(!heads[0].contains("gzip") && !heads[0].contains("range:") && !heads[0].contains("upgrade"), "{heads:?}");
    assert!(heads[1].contains("accept-encoding: gzip, br\r\n") && heads[1].contains("upgrade: websocket"), "{heads:?}");
}

#[tokio::test]
async fn header_names_and_response_size_are_configurable() {
    let head = format!("{JSON}who-is: alice\r\nx-bearward-scope: kept\r\nx-bearward-subject: mallory\r\n");
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(100 << 10));
    let (upstream, heads) = backend(response_text("200 OK", &head, &body).replace("x-bearward", "x-other"));
    let gateway = gateway(
        upstream.address,
        "[login]\nsubject = \"Who-Is\"\nscope = \"\"\nclaims = \"\"\nmax_response_size = \"101KiB\"",
    );
    let response = log_in(&gateway).await;
    let claims = claims_of(&TokenPair::from_json(&response.json()).access);
    assert_eq!((&claims["sub"], claims.get("scope")), (&json!("alice"), None));
    assert_eq!((response.header("who-is"), response.header("x-other-scope")), (None, Some("kept")));
    gateway.client().header("who_is", "mallory").get("/public/").await;
    assert!(!heads.lock().expect("unpoisoned")[1].contains("mallory"), "the header is removed in other spellings too");
}

#[tokio::test]
async fn without_a_login_route_the_headers_are_forwarded() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    gateway.client().header("x-bearward-subject", "1").get("/").await;
    assert_eq!(upstream.only_request().header("x-bearward-subject"), Some("1"));
}

//! Responses of a login route that the gateway does not change, and those that cannot carry tokens.

use http::Method;
use serde_json::json;

use super::*;
use crate::support::tokens::claims_of;

#[tokio::test]
async fn a_response_without_the_subject_header_is_not_changed() {
    for (status, head, body) in [
        (
            "401 Unauthorized",
            "content-type: application/json\r\netag: \"1\"\r\nwww-authenticate: Basic\r\n",
            r#"{"bare": 1}"#,
        ),
        ("200 OK", "content-type: application/json\r\ncontent-encoding: gzip\r\n", "bare, and not gzip at all"),
        ("302 Found", "location: /mfa\r\n", "bare"),
        ("500 Oh", "content-type: text/html\r\ncache-control: public\r\n", "bare"),
        ("200 OK", "content-type: text/plain\r\n", &"bare".repeat(100_000)),
    ] {
        let (upstream, _) = backend(response_text(status, head, body));
        let gateway = gateway(upstream.address, "");
        let response = log_in(&gateway).await;
        assert!(status.starts_with(response.status.as_str()), "{response:?}");
        assert_eq!(response.text(), body);
        for line in head.lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            assert_eq!(response.header(name), Some(value));
        }
    }
}

#[tokio::test]
async fn responses_without_a_body_are_not_changed() {
    for (status, method) in
        [("204 No Content", Method::POST), ("304 Not Modified", Method::GET), ("200 OK", Method::HEAD)]
    {
        let (upstream, _) = backend(format!("HTTP/1.1 {status}\r\n{JSON}etag: \"1\"\r\n\r\n"));
        let gateway = gateway(upstream.address, "");
        let response = gateway.client().send(method, "/login", "".into()).await;
        assert!(status.starts_with(response.status.as_str()), "{response:?}");
        assert_eq!((response.header("etag"), response.body.len()), (Some("\"1\""), 0));
    }
}

/// Login responses that cannot carry tokens. The client must not see the word `bare` of their heads and bodies.
fn invalid_responses() -> Vec<(&'static str, String)> {
    let with_alice = |status, head: &str, body: &str| response_text(status, &format!("{head}{ALICE}"), body);
    let with_headers = |head: &str| format!("HTTP/1.1 200 OK\r\n{JSON}{head}content-length: 10\r\n\r\n{{\"bare\":1}}");
    let bare = r#"{"bare":1}"#;
    let large = format!("{{\"bare\":\"{}\"}}", "x".repeat(64 << 10));
    vec![
        ("compressed", with_alice("200 OK", &format!("{JSON}content-encoding: gzip\r\n"), bare)),
        (
            "compressed twice",
            with_alice("200 OK", &format!("{JSON}content-encoding: identity\r\ncontent-encoding: br\r\n"), bare),
        ),
        ("too large by its length", with_alice("200 OK", JSON, &large)),
        (
            "too large without a length",
            format!(
                "HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
                large.len()
            ),
        ),
        ("a type other than JSON", with_alice("200 OK", "content-type: text/html\r\n", bare)),
        ("no type", with_alice("200 OK", "", bare)),
        ("two types", with_alice("200 OK", &format!("{JSON}{JSON}"), bare)),
        ("not JSON", with_alice("200 OK", JSON, "bare")),
        ("incomplete JSON", with_alice("200 OK", JSON, r#"{"bare":1"#)),
        ("two objects", with_alice("200 OK", JSON, r#"{"bare":1}{"bare":2}"#)),
        ("a list", with_alice("200 OK", JSON, r#"["bare"]"#)),
        ("a string", with_alice("200 OK", JSON, r#""bare}""#)),
        ("null", with_alice("200 OK", JSON, "null")),
        ("empty", with_alice("200 OK", JSON, "")),
        (
            "cut off",
            format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\na\r\n{{\"bare\":1}}\r\nzz"),
        ),
        ("204", format!("HTTP/1.1 204 No Content\r\n{ALICE}\r\n")),
        ("205", with_alice("205 Reset", JSON, "")),
        ("206", with_alice("206 Part", &format!("{JSON}content-range: bytes 0-9/10\r\n"), bare)),
        ("304", format!("HTTP/1.1 304 Not Modified\r\n{ALICE}\r\n")),
        ("303", with_alice("303 See", &format!("{JSON}location: /bare\r\n"), bare)),
        ("401", with_alice("401 No", JSON, bare)),
        ("500", with_alice("500 No", JSON, bare)),
        ("accessToken", with_alice("200 OK", JSON, r#"{"bare":1,"accessToken":"theirs"}"#)),
        ("refreshToken", with_alice("200 OK", JSON, r#"{"refresh\u0054oken":null,"bare":1}"#)),
        ("expiresAt", with_alice("200 OK", JSON, r#"{"bare":1,"expiresAt":0}"#)),
        ("success is false", with_alice("200 OK", JSON, r#"{"bare":1,"success":false}"#)),
        ("success twice", with_alice("200 OK", JSON, r#"{"bare":1,"success":true,"success":true}"#)),
        ("an empty subject", with_headers("x-bearward-subject:\r\n")),
        ("two subjects", with_headers(&format!("{ALICE}{ALICE}"))),
        ("a subject that is too long", with_headers(&format!("x-bearward-subject: {}\r\n", "a".repeat(256)))),
        ("a scope alone", with_headers("x-bearward-scope: a\r\n")),
        ("claims alone", with_headers("x-bearward-claims: {}\r\n")),
        ("two scopes", with_headers(&format!("{ALICE}x-bearward-scope: a\r\nx-bearward-scope: b\r\n"))),
        ("an invalid scope", with_headers(&format!("{ALICE}x-bearward-scope: \"a\"\r\n"))),
        ("claims that are not JSON", with_headers(&format!("{ALICE}x-bearward-claims: tenant=acme\r\n"))),
        ("claims that are a list", with_headers(&format!("{ALICE}x-bearward-claims: [1]\r\n"))),
        ("a claim twice", with_headers(&format!("{ALICE}x-bearward-claims: {{\"a\":1,\"a\":2}}\r\n"))),
        ("a claim that the gateway sets", with_headers(&format!("{ALICE}x-bearward-claims: {{\"iss\":\"x\"}}\r\n"))),
        (
            "a token too large to be accepted",
            with_headers(&format!("{ALICE}x-bearward-claims: {{\"a\":\"{}\"}}\r\n", "x".repeat(8 << 10))),
        ),
    ]
}

#[tokio::test]
async fn a_login_response_that_cannot_carry_tokens_becomes_503() {
    for (what, response) in invalid_responses() {
        let (upstream, _) = backend(response);
        let gateway = gateway(upstream.address, "");
        let response = log_in(&gateway).await;
        eprintln!("{what}: {response:?}");
        response.assert_rejected(503, "temporarily_unavailable");
        assert!(response.header("retry-after").is_some());
        let text = format!("{response:?}");
        assert!(!text.contains("bare") && !text.contains("alice"), "{text}");
        assert_eq!(session_count(&gateway, "alice").await, 0, "{what}: there is no session");
        let line = gateway.log_lines(1).await.remove(0);
        assert_eq!((&line["reason"], &line["status"]), (&json!("login_capture"), &json!(503)), "{what}");
        let detail = line["detail"].as_str().unwrap_or_else(|| panic!("{what}: the log says why: {line}"));
        assert!(!detail.contains("bare") && !detail.contains("alice"), "{detail}");
    }
}

/// The body and the headers must be UTF-8. Letters outside ASCII are accepted.
#[tokio::test]
async fn a_login_response_must_be_utf_8() {
    let responses = [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\n\
          content-length: 7\r\n\r\n{\"\xff\":1}"
            .to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: al\xffice\r\n\
          content-length: 2\r\n\r\n{}"
            .to_vec(),
    ];
    for response in responses {
        let (upstream, _) = backend(response);
        log_in(&gateway(upstream.address, "")).await.assert_rejected(503, "temporarily_unavailable");
    }
    let (upstream, _) = backend(response_text("200 OK", &format!("{JSON}x-bearward-subject: Ali\u{e7}e\r\n"), "{}"));
    let response = log_in(&gateway(upstream.address, "")).await;
    assert_eq!(claims_of(&TokenPair::from_json(&response.json()).access)["sub"], "Ali\u{e7}e");
}

#[tokio::test]
async fn a_head_request_to_a_login_route_issues_no_tokens() {
    let (upstream, _) = backend(format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}content-length: 10\r\n\r\n"));
    let gateway = gateway(upstream.address, "");
    let response = gateway.client().send(Method::HEAD, "/login", "".into()).await;
    assert_eq!((response.status.as_u16(), response.body.len()), (503, 0));
    assert_eq!(session_count(&gateway, "alice").await, 0);
}

//! The request of a refresh: method, media type, size, JSON, and the format of the refresh token.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::refreshed;
use crate::support::client::send_raw;
use crate::support::tokens::forged_refresh;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

async fn post(gateway: &Gateway, pair: &TokenPair, media_type: Option<&str>, body: impl Into<Bytes>) -> TestResponse {
    let mut client = gateway.client().bearer(&pair.access);
    if let Some(media_type) = media_type {
        client = client.header("content-type", media_type);
    }
    client.send(Method::POST, "/user/refresh", body.into()).await
}

#[tokio::test]
async fn a_refresh_must_be_a_post() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let response = gateway.client().send(method.clone(), "/user/refresh", Bytes::new()).await;
        assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("POST")), "{method}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_refresh_must_have_the_media_type_json() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let body = json!({ "refreshToken": pair.refresh }).to_string();
    for media_type in [None, Some(""), Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("text/json")]
    {
        post(&gateway, &pair, media_type, body.clone()).await.assert_rejected(415, "invalid_request");
    }
    // With two media types, another parser could read another body.
    let twice = gateway.client().bearer(&pair.access).header("content-type", "application/json");
    let twice = twice.header("content-type", "application/x-www-form-urlencoded");
    twice.send(Method::POST, "/user/refresh", body.clone().into()).await.assert_rejected(415, "invalid_request");
    for media_type in ["application/json", "Application/JSON", "application/json; charset=utf-8"] {
        assert_eq!(post(&gateway, &pair, Some(media_type), body.clone()).await.status, 200, "{media_type}");
    }
}

#[tokio::test]
async fn the_body_must_be_an_object_with_one_refresh_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = &pair.refresh;
    for body in [
        String::new(),
        "x".into(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        format!("{token:?}"),
        format!("[{token:?}]"),
        format!("{{\"refresh_token\":{token:?}}}"),
        format!("{{\"refreshtoken\":{token:?}}}"),
        format!("{{\"refreshToken\":[{token:?}]}}"),
        format!("{{\"refreshToken\":{token:?}"),
        format!("{{\"refreshToken\":{token:?}}}x"),
        format!("{{\"refreshToken\":{token:?},\"refreshToken\":{token:?}}}"),
        format!("{{\"refreshToken\":{token:?},\"a\":1,\"a\":2}}"),
        json!({ "refreshToken": null }).to_string(),
        json!({ "refreshToken": 5 }).to_string(),
        json!({ "refreshToken": { "a": 1 } }).to_string(),
    ] {
        let response = post(&gateway, &pair, Some("application/json"), body.clone()).await;
        eprintln!("{body}");
        response.assert_rejected(400, "invalid_request");
    }
    post(&gateway, &pair, Some("application/json"), &b"{\"refreshToken\":\"\xff\"}"[..])
        .await
        .assert_rejected(400, "invalid_request");

    let response =
        gateway.client().header("accept", "application/problem+json").post("/user/refresh", &json!({})).await;
    response.assert_rejected(400, "invalid_request");
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json"),
        "the body is checked before the Bearer"
    );

    let more = json!({ "refreshToken": token, "device": { "name": "phone" } }).to_string();
    assert_eq!(post(&gateway, &pair, Some("application/json"), more).await.status, 200, "unknown members are ignored");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_body_over_8_kib_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let padded = |len: usize| {
        let body = json!({ "refreshToken": pair.refresh }).to_string();
        format!("{body}{}", " ".repeat(len - body.len()))
    };
    post(&gateway, &pair, Some("application/json"), padded(8 * 1024 + 1)).await.assert_rejected(413, "invalid_request");
    let chunked = |body: &str| {
        format!(
            "POST /user/refresh HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            pair.access,
            body.len()
        )
    };
    let response = send_raw(gateway.address(), chunked(&padded(8 * 1024 + 1)).as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    let response = send_raw(gateway.address(), chunked(&padded(8 * 1024)).as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert_eq!(post(&gateway, &pair, Some("application/json"), padded(8 * 1024)).await.status, 200);
}

#[tokio::test]
async fn all_invalid_refresh_tokens_get_the_same_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = &pair.refresh;
    let other_end = if token.ends_with('0') { "1" } else { "0" };
    let mut responses = Vec::new();
    for malformed in [
        String::new(),
        "x".into(),
        pair.access.clone(),
        pair.token_id.clone(),
        token[..89].to_owned(),
        format!("{}{other_end}", &token[..89]),
        format!("{token}0"),
        format!("{token}\n"),
        format!(" {token}"),
        token.to_uppercase(),
        token.replacen("bwr1_", "bwr2_", 1),
        token.replacen('_', "-", 2),
        format!("é{}", &token[2..]),
        "x".repeat(4096),
        forged_refresh(&pair.token_id),
    ] {
        let response = gateway.refresh(&pair.access, &malformed).await;
        eprintln!("{malformed}");
        response.assert_rejected(400, "invalid_grant");
        let mut body = response.json();
        body["requestId"].take();
        responses.push(body);
    }
    responses.dedup();
    assert_eq!(responses.len(), 1, "all errors look the same to an attacker: {responses:?}");
    refreshed(&gateway, &pair).await;

    let lines = gateway.log_lines(16).await;
    let reasons: Vec<_> = lines.iter().filter_map(|line| line["reason"].as_str()).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "grant_malformed").count(), 14, "the log has the reason");
    assert_eq!(reasons.iter().filter(|reason| **reason == "grant_forged").count(), 1);
    gateway.drain_and_check_log();
}

/// As at the token endpoint: a session that was issued for a client needs the same client.
#[tokio::test]
async fn a_session_of_a_client_needs_its_client_id() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "app" })).await;
    let pair = TokenPair::from_json(&issued.json());
    let refresh = async |client_id: serde_json::Value| {
        let mut body = json!({ "refreshToken": pair.refresh, "clientId": client_id });
        if client_id.is_null() {
            body = json!({ "refreshToken": pair.refresh });
        }
        post(&gateway, &pair, Some("application/json"), body.to_string()).await
    };
    for other in [json!(null), json!(""), json!("App"), json!("other")] {
        refresh(other).await.assert_rejected(400, "invalid_grant");
    }
    refresh(json!(["app"])).await.assert_rejected(400, "invalid_request");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "a wrong client does not end the session");
    let response = refresh(json!("app")).await;
    assert_eq!(response.status, 200, "{response:?}");

    let unbound = gateway.issue("alice", "").await;
    let body = json!({ "refreshToken": unbound.refresh, "clientId": "any" }).to_string();
    assert_eq!(post(&gateway, &unbound, Some("application/json"), body).await.status, 200);
}

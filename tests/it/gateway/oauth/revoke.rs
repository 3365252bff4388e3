//! `POST /oauth/revoke` (RFC 7009).

use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use super::{BASIC, OAUTH, assert_error, gateway, post};
use crate::support::tokens::{Mint, forged_refresh};
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

async fn revoke(gateway: &Gateway, token: &str) -> TestResponse {
    post(gateway.client(), "/oauth/revoke", &[("token", token)]).await
}

#[track_caller]
fn assert_accepted(response: &TestResponse) {
    assert_eq!((response.status.as_u16(), response.json()), (200, json!({})), "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn revoking_any_token_of_a_session_ends_it_durably() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let mut revoked = Vec::new();
    for (what, hint) in
        [("access", "access_token"), ("refresh", "refresh_token"), ("refresh", "access_token"), ("used", "unknown")]
    {
        let (pair, sibling) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
        let next = TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json());
        let token = match what {
            "access" => &pair.access,
            "refresh" => &next.refresh,
            _ => &pair.refresh,
        };
        let form = [("token", token.as_str()), ("token_type_hint", hint), ("client_id", "any")];
        assert_accepted(&post(gateway.client(), "/oauth/revoke", &form).await);
        for access in [&pair.access, &next.access] {
            assert_eq!(gateway.status_of(access).await, 401, "{what}: revoked before the response");
        }
        gateway.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
        assert_eq!(gateway.status_of(&sibling.access).await, 200, "{what}");
        assert_accepted(&post(gateway.client(), "/oauth/revoke", &form).await);
        revoked.push(next.access);
    }
    let gateway = gateway.restart();
    for access in &revoked {
        assert_eq!(gateway.status_of(access).await, 401);
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn revoking_an_invalid_token_is_200_and_ends_nothing() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let forged = forged(&pair);
    // Access tokens contain the token id, so the id alone must not be enough to end a session.
    let forged_by_id = forged_refresh(&pair.token_id);
    for token in ["x", "a,b", "a.b.c", &pair.token_id, &forged, &forged_by_id, &pair.refresh[..89], &"x".repeat(8_000)]
    {
        assert_accepted(&revoke(&gateway, token).await);
    }
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    gateway.advance(std::time::Duration::from_secs(3600));
    assert_accepted(&revoke(&gateway, &pair.access).await);
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200, "an expired access token ends nothing");
}

fn forged(pair: &TokenPair) -> String {
    let (message, signature) = pair.access.rsplit_once('.').expect("three segments");
    format!("{message}.{}", signature.chars().rev().collect::<String>())
}

#[tokio::test]
async fn a_token_of_another_issuer_cannot_be_revoked() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, OAUTH);
    let external = mint.valid_token(gateway.now_secs());
    assert_error(&revoke(&gateway, &external).await, 400, "unsupported_token_type");
    assert_eq!(gateway.status_of(&external).await, 200);
}

#[tokio::test]
async fn a_revocation_without_token_or_with_credentials_is_rejected() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    assert_error(&post(gateway.client(), "/oauth/revoke", &[("token", "")]).await, 400, "invalid_request");
    let form = [("token", pair.refresh.as_str()), ("client_secret", "x")];
    assert_error(&post(gateway.client(), "/oauth/revoke", &form).await, 401, "invalid_client");
    let basic = gateway.client().header("authorization", "Basic YTpi");
    let response = post(basic, "/oauth/revoke", &form[..1]).await;
    assert_error(&response, 401, "invalid_client");
    assert_eq!(response.header("www-authenticate"), Some(BASIC), "RFC 6749 section 5.2");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

/// RFC 7009 section 2.1: a client may revoke only its own tokens.
#[tokio::test]
async fn a_client_cannot_end_the_session_of_another() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "app" })).await;
    let pair = TokenPair::from_json(&issued.json());
    for token in [&pair.refresh, &pair.access] {
        for form in [vec![("token", token.as_str()), ("client_id", "other")], vec![("token", token.as_str())]] {
            assert_error(&post(gateway.client(), "/oauth/revoke", &form).await, 400, "invalid_grant");
            assert_eq!(gateway.status_of(&pair.access).await, 200, "the session lives");
        }
    }
    let form = [("token", pair.access.as_str()), ("client_id", "app")];
    assert_accepted(&post(gateway.client(), "/oauth/revoke", &form).await);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
    // A session that has ended already is still that of its client.
    let refresh = [("token", pair.refresh.as_str()), ("client_id", "app")];
    assert_accepted(&post(gateway.client(), "/oauth/revoke", &refresh).await);
    gateway.drain_and_check_log();
}

//! `POST /oauth/introspect` (RFC 7662).

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use super::{OAUTH, assert_error, gateway, post};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, claims_of, forged_refresh};
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const SCOPE: &str = "token:introspect";

async fn introspect(gateway: &Gateway, caller: &TokenPair, token: &str) -> TestResponse {
    post(gateway.client().bearer(&caller.access), "/oauth/introspect", &[("token", token)]).await
}

async fn introspected(gateway: &Gateway, caller: &TokenPair, token: &str) -> Value {
    let response = introspect(gateway, caller, token).await;
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, Some("no-store")), "{response:?}");
    response.json()
}

#[tokio::test]
async fn a_caller_with_the_scope_can_introspect_any_valid_token() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, OAUTH);
    let caller = gateway.issue("service", SCOPE).await;
    let login = json!({ "sub": "alice", "scope": "a b", "clientId": "app", "claims": { "salary": 1 } });
    let pair = TokenPair::from_json(&gateway.request_tokens(&login).await.json());

    let claims = claims_of(&pair.access);
    let mut expected =
        json!({ "active": true, "token_type": "Bearer", "client_id": "app", "sub": "alice", "scope": "a b" });
    for name in ["iss", "aud", "exp", "iat", "jti", "sid"] {
        expected[name] = claims[name].clone();
    }
    assert_eq!(introspected(&gateway, &caller, &pair.access).await, expected, "these members and no others");

    let now = gateway.now_secs();
    let expected = json!({
        "active": true, "token_type": "refresh_token", "iss": "https://gateway.example", "sub": "alice", "scope": "a b",
        "client_id": "app", "sid": pair.token_id, "iat": now, "exp": now + 7 * 86_400,
    });
    assert_eq!(introspected(&gateway, &caller, &pair.refresh).await, expected);

    let external = introspected(&gateway, &caller, &mint.valid_token(now)).await;
    assert_eq!(
        (&external["active"], &external["iss"], &external["sub"]),
        (&json!(true), &json!(EXTERNAL_ISSUER), &json!("bob"))
    );
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn introspection_requires_the_scope() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, OAUTH);
    let (alice, caller) = (gateway.issue("alice", "a").await, gateway.issue("service", SCOPE).await);
    let form = [("token", alice.access.as_str())];
    let send = |client| post(client, "/oauth/introspect", &form);
    let own = send(gateway.client().bearer(&alice.access)).await;
    assert_error(&own, 403, "insufficient_scope");
    assert!(own.header("www-authenticate").is_some_and(|challenge| challenge.contains("scope=\"token:introspect\"")));
    let external = mint.with_claims(gateway.now_secs(), json!({ "scope": SCOPE }));
    assert_error(&send(gateway.client().bearer(&external)).await, 403, "insufficient_scope");
    assert_error(&send(gateway.client()).await, 401, "unauthorized");
    assert_error(&send(gateway.client().header("authorization", "Basic YTpi")).await, 401, "unauthorized");
    assert_error(&send(gateway.client().bearer(&caller.refresh)).await, 401, "invalid_token");
    assert_error(&send(gateway.client().bearer(&caller.access).bearer(&caller.access)).await, 400, "invalid_request");
    assert_eq!(gateway.revoke(&caller.access, &caller.token_id).await.status, 200);
    assert_error(&send(gateway.client().bearer(&caller.access)).await, 401, "invalid_token");
}

#[tokio::test]
async fn an_invalid_token_is_reported_as_inactive_only() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let caller = gateway.issue("service", SCOPE).await;
    let first = gateway.issue("alice", "").await;
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    let revoked = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&revoked.access, &revoked.token_id).await.status, 200);
    let forged = forged_refresh(&caller.token_id);
    let large = "x".repeat(8_000);
    for token in ["x", "a,b", &first.refresh, &revoked.access, &revoked.refresh, &second.token_id, &forged, &large] {
        assert_eq!(introspected(&gateway, &caller, token).await, json!({ "active": false }), "{token}");
    }
    for token in [&first.access, &second.access, &second.refresh] {
        assert_eq!(
            introspected(&gateway, &caller, token).await["active"],
            true,
            "a rotation does not end access tokens"
        );
    }
    assert_error(
        &post(gateway.client().bearer(&caller.access), "/oauth/introspect", &[]).await,
        400,
        "invalid_request",
    );

    gateway.advance(Duration::from_secs(3600));
    let caller = gateway.issue("service", SCOPE).await;
    assert_eq!(introspected(&gateway, &caller, &second.access).await, json!({ "active": false }), "expired");
    gateway.advance(Duration::from_secs(7 * 86_400));
    let caller = gateway.issue("service", SCOPE).await;
    assert_eq!(introspected(&gateway, &caller, &second.refresh).await, json!({ "active": false }));
}

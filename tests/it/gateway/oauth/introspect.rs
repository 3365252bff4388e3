//! `POST /oauth/introspect` (RFC 7662).

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use super::{OAUTH, gateway, post, refused};
use crate::support::tokens::{FOREIGN, Mint, claims_of, forged_refresh};
use crate::support::{Answer, Gateway, Pair, Upstream};

const SCOPE: &str = "token:introspect";

async fn ask(gateway: &Gateway, asker: &Pair, token: &str) -> Answer {
    post(gateway.client().bearer(&asker.access), "/oauth/introspect", &[("token", token)]).await
}

async fn told(gateway: &Gateway, asker: &Pair, token: &str) -> Value {
    let answer = ask(gateway, asker, token).await;
    assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, Some("no-store")), "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn whoever_has_the_scope_is_told_whose_a_good_token_is() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, OAUTH);
    let asker = gateway.issue("service", SCOPE).await;
    let wanted = json!({ "sub": "alice", "scope": "a b", "clientId": "app", "claims": { "salary": 1 } });
    let pair = Pair::of(&gateway.ask_for_tokens(&wanted).await.json());

    let claims = claims_of(&pair.access);
    let mut expected =
        json!({ "active": true, "token_type": "Bearer", "client_id": "app", "sub": "alice", "scope": "a b" });
    for name in ["iss", "aud", "exp", "iat", "jti", "sid"] {
        expected[name] = claims[name].clone();
    }
    assert_eq!(told(&gateway, &asker, &pair.access).await, expected, "and nothing more");

    let now = gateway.now_secs();
    let expected = json!({
        "active": true, "token_type": "refresh_token", "iss": "https://gateway.example", "sub": "alice", "scope": "a b",
        "client_id": "app", "sid": pair.token_id, "iat": now, "exp": now + 7 * 86_400,
    });
    assert_eq!(told(&gateway, &asker, &pair.refresh).await, expected);

    let foreign = told(&gateway, &asker, &mint.good(now)).await;
    assert_eq!((&foreign["active"], &foreign["iss"], &foreign["sub"]), (&json!(true), &json!(FOREIGN), &json!("bob")));
    gateway.end_without_a_token_in_the_log();
}

#[tokio::test]
async fn nobody_else_is_told_anything_about_anybody() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, OAUTH);
    let (alice, asker) = (gateway.issue("alice", "a").await, gateway.issue("service", SCOPE).await);
    let form = [("token", alice.access.as_str())];
    let send = |client| post(client, "/oauth/introspect", &form);
    let own = send(gateway.client().bearer(&alice.access)).await;
    refused(&own, 403, "insufficient_scope");
    assert!(own.header("www-authenticate").is_some_and(|challenge| challenge.contains("scope=\"token:introspect\"")));
    let foreign = mint.with_claims(gateway.now_secs(), json!({ "scope": SCOPE }));
    refused(&send(gateway.client().bearer(&foreign)).await, 403, "insufficient_scope");
    refused(&send(gateway.client()).await, 401, "unauthorized");
    refused(&send(gateway.client().header("authorization", "Basic YTpi")).await, 401, "unauthorized");
    refused(&send(gateway.client().bearer(&asker.refresh)).await, 401, "invalid_token");
    refused(&send(gateway.client().bearer(&asker.access).bearer(&asker.access)).await, 400, "invalid_request");
    assert_eq!(gateway.revoke(&asker.access, &asker.token_id).await.status, 200);
    refused(&send(gateway.client().bearer(&asker.access)).await, 401, "invalid_token");
}

#[tokio::test]
async fn a_token_that_is_not_good_is_inactive_and_nothing_else() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let asker = gateway.issue("service", SCOPE).await;
    let first = gateway.issue("alice", "").await;
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    let revoked = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&revoked.access, &revoked.token_id).await.status, 200);
    let minted_elsewhere = forged_refresh(&asker.token_id);
    let large = "x".repeat(8_000);
    for token in
        ["x", "a,b", &first.refresh, &revoked.access, &revoked.refresh, &second.token_id, &minted_elsewhere, &large]
    {
        assert_eq!(told(&gateway, &asker, token).await, json!({ "active": false }), "{token}");
    }
    for token in [&first.access, &second.access, &second.refresh] {
        assert_eq!(told(&gateway, &asker, token).await["active"], true, "a mere rotation ends no access token");
    }
    refused(&post(gateway.client().bearer(&asker.access), "/oauth/introspect", &[]).await, 400, "invalid_request");

    gateway.advance(Duration::from_secs(3600));
    let asker = gateway.issue("service", SCOPE).await;
    assert_eq!(told(&gateway, &asker, &second.access).await, json!({ "active": false }), "expired");
    gateway.advance(Duration::from_secs(7 * 86_400));
    let asker = gateway.issue("service", SCOPE).await;
    assert_eq!(told(&gateway, &asker, &second.refresh).await, json!({ "active": false }));
}

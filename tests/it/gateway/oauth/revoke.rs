//! `POST /oauth/revoke` (RFC 7009).

use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use super::{OAUTH, gateway, post, refused};
use crate::support::tokens::{Mint, forged_refresh};
use crate::support::{Answer, Gateway, Pair, Upstream};

async fn revoke(gateway: &Gateway, token: &str) -> Answer {
    post(gateway.client(), "/oauth/revoke", &[("token", token)]).await
}

#[track_caller]
fn accepted(answer: &Answer) {
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({})), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn any_token_of_a_login_ends_all_of_it_durably() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let mut dead = Vec::new();
    for (what, hint) in
        [("access", "access_token"), ("refresh", "refresh_token"), ("refresh", "access_token"), ("spent", "odd")]
    {
        let (pair, sibling) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
        let next = Pair::of(&gateway.refresh(&pair.access, &pair.refresh).await.json());
        let token = match what {
            "access" => &pair.access,
            "refresh" => &next.refresh,
            _ => &pair.refresh,
        };
        let form = [("token", token.as_str()), ("token_type_hint", hint), ("client_id", "any")];
        accepted(&post(gateway.client(), "/oauth/revoke", &form).await);
        for access in [&pair.access, &next.access] {
            assert_eq!(gateway.status_of(access).await, 401, "{what}: before the answer was sent");
        }
        gateway.refresh(&next.access, &next.refresh).await.refused(400, "invalid_grant");
        assert_eq!(gateway.status_of(&sibling.access).await, 200, "{what}");
        accepted(&post(gateway.client(), "/oauth/revoke", &form).await);
        dead.push(next.access);
    }
    let gateway = gateway.restart();
    for access in &dead {
        assert_eq!(gateway.status_of(access).await, 401);
    }
    gateway.end_without_a_token_in_the_log();
}

#[tokio::test]
async fn what_is_no_good_token_is_200_and_ends_nothing() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let forged = forged(&pair);
    // Whoever knows a tokenId, and everybody who sees an access token does, must not be able to end it.
    let minted_elsewhere = forged_refresh(&pair.token_id);
    for token in
        ["x", "a,b", "a.b.c", &pair.token_id, &forged, &minted_elsewhere, &pair.refresh[..89], &"x".repeat(8_000)]
    {
        accepted(&revoke(&gateway, token).await);
    }
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    gateway.advance(std::time::Duration::from_secs(3600));
    accepted(&revoke(&gateway, &pair.access).await);
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200, "an expired access token ends nothing");
}

fn forged(pair: &Pair) -> String {
    let (message, signature) = pair.access.rsplit_once('.').expect("three segments");
    format!("{message}.{}", signature.chars().rev().collect::<String>())
}

#[tokio::test]
async fn a_token_of_another_issuer_is_not_reported_revoked() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, OAUTH);
    let foreign = mint.good(gateway.now_secs());
    refused(&revoke(&gateway, &foreign).await, 400, "unsupported_token_type");
    assert_eq!(gateway.status_of(&foreign).await, 200);
}

#[tokio::test]
async fn a_form_without_a_token_and_client_credentials_are_refused() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    refused(&post(gateway.client(), "/oauth/revoke", &[("token", "")]).await, 400, "invalid_request");
    let form = [("token", pair.refresh.as_str()), ("client_secret", "x")];
    refused(&post(gateway.client(), "/oauth/revoke", &form).await, 401, "invalid_client");
    let basic = gateway.client().header("authorization", "Basic YTpi");
    refused(&post(basic, "/oauth/revoke", &form[..1]).await, 401, "invalid_client");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

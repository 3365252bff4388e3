//! The Bearer of a refresh: it may have expired, and must belong to the same session as the refresh token.

use std::time::Duration;

use serde_json::{Value, json};

use super::{DAY, HOUR, MILLISECOND, gateway_with_tokens, listed, pair_of, refreshed};
use crate::support::tokens::{claims_of, header_of};
use crate::support::{Gateway, Upstream};

/// Signs claims with the key of the gateway.
fn signed(gateway: &Gateway, claims: &Value) -> String {
    let signing = gateway.running().broker.keyring.keys().own().signing.clone();
    signing.sign(claims.as_object().expect("an object")).expect("signed")
}

#[tokio::test]
async fn a_refresh_needs_a_valid_bearer() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let body = json!({ "refreshToken": pair.refresh });
    let bearer = |token: &str| gateway.client().bearer(token);
    let (message, signature) = pair.access.rsplit_once('.').expect("three segments");
    let forged = format!("{message}.{}", signature.chars().rev().collect::<String>());
    let mut claims = claims_of(&pair.access);
    claims["aud"] = "https://other.example".into();
    let other_audience = signed(&gateway, &claims);
    let mut claims = claims_of(&pair.access);
    claims["nbf"] = (gateway.now_secs() + 60).into();
    let early = signed(&gateway, &claims);
    for (what, client, status, error) in [
        ("none", gateway.client(), 401, "unauthorized"),
        ("another scheme", gateway.client().header("authorization", "Basic YTpi"), 401, "unauthorized"),
        ("no JWT", bearer("x"), 401, "invalid_token"),
        ("a refresh token", bearer(&pair.refresh), 401, "invalid_token"),
        ("a forged token", bearer(&forged), 401, "invalid_token"),
        ("another audience", bearer(&other_audience), 401, "invalid_token"),
        ("a token before its nbf", bearer(&early), 401, "invalid_token"),
        ("two", bearer(&pair.access).bearer(&pair.access), 400, "invalid_request"),
    ] {
        let response = client.post("/user/refresh", &body).await;
        eprintln!("{what}: {response:?}");
        response.assert_rejected(status, error);
        let challenge = response.header("www-authenticate").map(|challenge| challenge.contains("error="));
        assert_eq!(challenge, (status == 401).then_some(error == "invalid_token"), "RFC 6750 section 3.1");
    }
    refreshed(&gateway, &pair).await;
}

#[tokio::test]
async fn an_expired_bearer_can_refresh_until_the_idle_limit() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    let exp = claims_of(&first.access)["exp"].as_u64().expect("an integer");
    assert_eq!(gateway.status_of(&first.access).await, 200);

    gateway.advance(HOUR);
    assert_eq!(gateway.status_of(&first.access).await, 401);
    let second = refreshed(&gateway, &first).await;
    gateway.advance(6 * DAY);
    let third = pair_of(&gateway.refresh(&first.access, &second.refresh).await);

    // The gateway adds the clock skew of 5 s to the expiry.
    let last = exp + 5 + 7 * 86_400;
    gateway.advance(Duration::from_secs(last - gateway.now_secs()) - MILLISECOND);
    let fourth = pair_of(&gateway.refresh(&first.access, &third.refresh).await);
    gateway.advance(MILLISECOND);
    gateway.refresh(&first.access, &fourth.refresh).await.assert_rejected(401, "invalid_token");
    gateway.advance(DAY);
    gateway.refresh(&first.access, &fourth.refresh).await.assert_rejected(401, "invalid_token");
    refreshed(&gateway, &fourth).await;
}

#[tokio::test]
async fn a_bearer_of_another_session_cannot_refresh_and_ends_neither() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let phone = gateway.issue("alice", "").await;
    let laptop = gateway.issue("alice", "").await;
    let bob = gateway.issue("bob", "").await;
    let mut claims = claims_of(&phone.access);
    claims["sub"] = "bob".into();
    let other_subject = signed(&gateway, &claims);
    for bearer in [&laptop.access, &bob.access, &other_subject] {
        gateway.refresh(bearer, &phone.refresh).await.assert_rejected(400, "invalid_grant");
    }
    for (pair, subject) in [(&phone, "alice"), (&laptop, "alice"), (&bob, "bob")] {
        assert_eq!(listed(&gateway, pair, subject).await["state"], "live");
        refreshed(&gateway, pair).await;
    }
    let lines = gateway.log_lines(6).await;
    let mismatches: Vec<_> = lines.iter().filter(|line| line["reason"] == "grant_mismatch").collect();
    assert_eq!(mismatches.len(), 3, "{lines:?}");
    let of_bob = mismatches.iter().find(|line| line["subject"] == "bob" && line["token_id"] == bob.token_id.as_str());
    let detail = &of_bob.expect("the log has the subject and the token id of the Bearer")["detail"];
    assert_eq!(*detail, format!("the refresh token belongs to {}, the bearer token to another family", phone.token_id));
    gateway.drain_and_check_log();
}

/// A client that refreshes after each 401 would repeat forever.
#[tokio::test]
async fn the_bearer_of_a_revoked_session_gets_400_not_401() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    response.assert_rejected(400, "invalid_grant");
    assert!(response.header("www-authenticate").is_none());
}

#[tokio::test]
async fn lowering_the_access_lifetime_ends_no_session() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "access_lifetime = \"1h\"");
    let pair = gateway.issue("alice", "").await;
    let gateway = gateway.restart_with(|text| text.replace("\"1h\"", "\"5m\""));
    assert_eq!(gateway.status_of(&pair.access).await, 200, "the old token keeps its expiry");
    let next = refreshed(&gateway, &pair).await;
    let claims = claims_of(&next.access);
    let lifetime = claims["exp"].as_u64().expect("exp") - claims["iat"].as_u64().expect("iat");
    assert!((285..=300).contains(&lifetime), "{lifetime}");

    assert_eq!(gateway.revoke(&next.access, &next.token_id).await.status, 200);
    gateway.advance(Duration::from_secs(50 * 60));
    let gateway = gateway.restart_with(|text| text);
    assert_eq!(gateway.status_of(&pair.access).await, 401, "the old token stays revoked until it expires");
}

#[tokio::test]
async fn changing_the_algorithm_ends_no_session() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "algorithm = \"ES256\"");
    let old = gateway.issue("alice", "").await;
    gateway.advance(MILLISECOND);
    let gateway = gateway.restart_with(|text| text.replace("\"ES256\"", "\"EdDSA\""));
    assert_eq!(gateway.status_of(&old.access).await, 200);
    let published = gateway.client().get("/.well-known/jwks.json").await.json();
    let algorithms: Vec<_> = published["keys"].as_array().expect("keys").iter().map(|key| &key["alg"]).collect();
    assert_eq!(algorithms, ["EdDSA", "ES256"], "the new key comes first, a day before it signs");

    let same = refreshed(&gateway, &old).await;
    assert_eq!(header_of(&same.access)["alg"], "ES256");
    gateway.advance(DAY);
    let gateway = gateway.restart_with(|text| text);
    let new = refreshed(&gateway, &same).await;
    assert_eq!(header_of(&new.access)["alg"], "EdDSA");
    assert_eq!(gateway.status_of(&new.access).await, 200);

    let gateway = gateway.restart_with(|text| text.replace("\"EdDSA\"", "\"ES256\""));
    assert_eq!(gateway.status_of(&new.access).await, 200, "the algorithm can change back");
    refreshed(&gateway, &new).await;
}

//! `POST /oauth/token`: the rotation of everywhere, for clients that show a refresh token and nothing else.

use std::time::Duration;

use bearward::types::ids::TokenId;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{gateway, post, refused};
use crate::support::tokens::claims_of;
use crate::support::{Answer, Client, Gateway, Pair, Upstream};

async fn exchange(client: Client, refresh: &str) -> Answer {
    post(client, "/oauth/token", &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
}

#[track_caller]
fn granted(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = |member: &str| answer.json()[member].as_str().expect("a string").to_owned();
    (text("access_token"), text("refresh_token"))
}

#[tokio::test]
async fn a_refresh_token_is_exchanged_as_rfc_6749_says() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    for client in gateway.clients() {
        let pair = gateway.issue("alice", "orders:read b").await;
        let form =
            [("grant_type", "refresh_token"), ("refresh_token", &pair.refresh), ("client_id", "any"), ("scope", "b")];
        let answer = post(client, "/oauth/token", &form).await;
        assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, Some("no-store")), "{answer:?}");
        let body = answer.json();
        let (access, refresh) = granted(&answer);
        let claims = claims_of(&access);
        let lifetime = claims["exp"].as_u64().expect("a number") - gateway.now_secs();
        assert_eq!(
            body,
            json!({ "access_token": access, "token_type": "Bearer", "expires_in": lifetime, "refresh_token": refresh, "scope": "orders:read b" })
        );
        assert_eq!(claims["sid"], pair.token_id.as_str());
        assert_eq!(gateway.status_of(&access).await, 200);
        assert_eq!(gateway.refresh(&access, &refresh).await.status, 200, "both calls turn the same wheel");
    }
    gateway.end_without_a_token_in_the_log();
}

/// Rotation and the detection of a spent token are what protects a public client (RFC 9700 section 4.14.2).
#[tokio::test]
async fn a_lost_answer_is_given_again_and_a_spent_token_ends_the_login() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let first = gateway.issue("alice", "").await;
    let (_, second) = granted(&exchange(gateway.client(), &first.refresh).await);
    gateway.advance(Duration::from_secs(5));
    let (access, again) = granted(&exchange(gateway.client(), &first.refresh).await);
    assert_eq!(second, again, "the identical child");
    let (_, third) = granted(&exchange(gateway.client(), &second).await);
    let behind = exchange(gateway.client(), &first.refresh).await;
    refused(&behind, 409, "refresh_conflict");
    assert!(behind.header("retry-after").is_some());

    gateway.advance(Duration::from_secs(11));
    refused(&exchange(gateway.client(), &first.refresh).await, 400, "invalid_grant");
    assert_eq!(gateway.status_of(&access).await, 401, "whoever has it, the login is over");
    refused(&exchange(gateway.client(), &third).await, 400, "invalid_grant");
    let lines = gateway.log_lines(7).await;
    assert!(lines.iter().any(|line| line["reason"] == "grant_reused" && line["token_id"] == first.token_id.as_str()));
    gateway.end_without_a_token_in_the_log();
}

#[tokio::test]
async fn every_dead_or_foreign_grant_is_invalid_grant() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let (ended, idle) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    assert_eq!(gateway.revoke(&ended.access, &ended.token_id).await.status, 200);
    let mut answers: Vec<Value> = Vec::new();
    for refresh in [&ended.refresh, &ended.access, "x", &TokenId::random().to_string(), &idle.refresh[..89]] {
        let answer = exchange(gateway.client(), refresh).await;
        refused(&answer, 400, "invalid_grant");
        let mut body = answer.json();
        body["requestId"].take();
        answers.push(body);
    }
    gateway.advance(Duration::from_secs(7 * 86_400));
    refused(&exchange(gateway.client(), &idle.refresh).await, 400, "invalid_grant");
    answers.dedup();
    assert_eq!(answers.len(), 1, "nothing tells a thief how close they came: {answers:?}");
}

#[tokio::test]
async fn only_the_refresh_token_grant_and_no_client_credentials() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = ("refresh_token", pair.refresh.as_str());
    for grant in ["authorization_code", "password", "client_credentials", "Refresh_Token"] {
        let answer = post(gateway.client(), "/oauth/token", &[("grant_type", grant), token]).await;
        refused(&answer, 400, "unsupported_grant_type");
    }
    let grant = ("grant_type", "refresh_token");
    for form in [vec![grant], vec![token], vec![grant, ("refresh_token", "")], vec![("grant_type", ""), token]] {
        refused(&post(gateway.client(), "/oauth/token", &form).await, 400, "invalid_request");
    }
    for secret in ["client_secret", "client_assertion", "client_assertion_type"] {
        refused(&post(gateway.client(), "/oauth/token", &[grant, token, (secret, "x")]).await, 401, "invalid_client");
    }
    let basic = gateway.client().header("authorization", "Basic YTpi");
    refused(&exchange(basic, &pair.refresh).await, 401, "invalid_client");
    // An interceptor may add the access token to everything.
    granted(&exchange(gateway.client().bearer(&pair.access), &pair.refresh).await);
}

#[tokio::test]
async fn a_login_for_one_client_is_not_refreshed_for_another() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let issued = gateway.ask_for_tokens(&json!({ "sub": "alice", "clientId": "app" })).await;
    let pair = Pair::of(&issued.json());
    let as_client = |id: &'static str| {
        let (client, refresh) = (gateway.client(), pair.refresh.clone());
        async move {
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str()), ("client_id", id)];
            post(client, "/oauth/token", &form).await
        }
    };
    refused(&exchange(gateway.client(), &pair.refresh).await, 400, "invalid_grant");
    refused(&as_client("other").await, 400, "invalid_grant");
    granted(&as_client("app").await);
    assert_eq!(gateway.status_of(&pair.access).await, 200, "a mismatch ends nothing");
    let lines = gateway.log_lines(3).await;
    assert_eq!(lines.iter().filter(|line| line["reason"] == "grant_mismatch").count(), 2);
}

#[tokio::test]
async fn while_the_store_fails_nothing_is_exchanged_revoked_or_told() {
    let upstream = Upstream::start();
    let gateway: Gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let shell = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    shell.execute_batch("begin immediate").expect("locked");
    refused(&exchange(gateway.client(), &pair.refresh).await, 503, "temporarily_unavailable");
    for token in [&pair.refresh, &pair.access] {
        let answer = post(gateway.client(), "/oauth/revoke", &[("token", token)]).await;
        refused(&answer, 503, "temporarily_unavailable");
    }
    shell.execute_batch("rollback").expect("let go");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    granted(&exchange(gateway.client(), &pair.refresh).await);
}

//! How often tokens may be asked for, and that nobody can lock out somebody else.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::support::tokens::forged_refresh;
use crate::support::{Client, Gateway, TestResponse, TokenPair, Upstream};

const DOORS: &str = r#"
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
introspection_endpoint = "/oauth/introspect"
[forwarding]
trusted = ["127.0.0.1"]
[[route]]
path = "/"
[[route]]
path = "/status/"
public = true
login = true
"#;

const SECOND: Duration = Duration::from_secs(1);

/// Of another customer.
fn from(gateway: &Gateway, address: &str) -> Client {
    gateway.client().header("x-forwarded-for", address)
}

async fn form(client: Client, path: &str, body: String) -> TestResponse {
    client.header("content-type", "application/x-www-form-urlencoded").send(Method::POST, path, Bytes::from(body)).await
}

async fn exchange(client: Client, refresh: &str) -> TestResponse {
    form(client, "/oauth/token", format!("grant_type=refresh_token&refresh_token={refresh}")).await
}

async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> TokenPair {
    let answer = gateway.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    TokenPair::from_json(&answer.json())
}

#[track_caller]
fn limited(answer: &TestResponse, seconds: &str) {
    answer.assert_rejected(429, "rate_limited");
    assert_eq!(answer.header("retry-after"), Some(seconds), "{answer:?}");
}

#[tokio::test]
async fn a_login_is_refreshed_ten_times_at_once_and_then_once_in_five_seconds() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "", DOORS);
    let (mut pair, sibling) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    for _ in 0..10 {
        pair = refreshed(&gateway, &pair).await;
    }
    limited(&gateway.refresh(&pair.access, &pair.refresh).await, "5");
    limited(&exchange(gateway.client(), &pair.refresh).await, "5");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "its tokens are as good as before");
    refreshed(&gateway, &sibling).await;
    assert_eq!(gateway.revoke(&sibling.access, &pair.token_id).await.status, 200, "and it can be ended");
    gateway.wait_for_metric("rejections_total{reason=\"family_limited\"}", 2).await;

    let mut pair = gateway.issue("alice", "").await;
    for _ in 0..10 {
        pair = refreshed(&gateway, &pair).await;
    }
    gateway.advance(5 * SECOND);
    pair = refreshed(&gateway, &pair).await;
    limited(&gateway.refresh(&pair.access, &pair.refresh).await, "5");
    gateway.drain_and_check_log();
}

/// Many tabs at once, before one of them was answered, owe no more than a burst.
#[tokio::test]
async fn a_storm_is_waited_out_in_seconds() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "", DOORS);
    let pair = gateway.issue("alice", "").await;
    let storm = futures_util::future::join_all((0..40).map(|_| gateway.refresh(&pair.access, &pair.refresh))).await;
    let statuses: Vec<u16> = storm.iter().map(|answer| answer.status.as_u16()).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 200).count() >= 10, "{statuses:?}");
    gateway.advance(5 * SECOND);
    refreshed(&gateway, &pair).await;
}

/// Everybody who sees an access token knows the name of its login.
#[tokio::test]
async fn whoever_knows_only_the_name_of_a_login_cannot_use_up_its_refreshes() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 0", DOORS);
    let (alice, mallory) = (gateway.issue("alice", "").await, gateway.issue("mallory", "").await);
    let forged = forged_refresh(&alice.token_id);
    for _ in 0..20 {
        exchange(gateway.client(), &forged).await.assert_rejected(400, "invalid_grant");
        gateway.refresh(&mallory.access, &forged).await.assert_rejected(400, "invalid_grant");
    }
    refreshed(&gateway, &alice).await;
}

#[tokio::test]
async fn one_address_calls_so_often_and_another_is_not_concerned() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 3\nfailures = 0", DOORS);
    let pair = gateway.issue("alice", "token:introspect").await;
    let here = || from(&gateway, "192.0.2.1").bearer(&pair.access);
    let first = exchange(here(), &pair.refresh).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(form(here(), "/oauth/revoke", "token=x".into()).await.status, 200);
    here().delete("/token/x").await.assert_rejected(404, "token_not_found");

    limited(&here().delete("/token/x").await, "20");
    limited(&exchange(here(), &pair.refresh).await, "20");
    limited(&form(here(), "/oauth/revoke", "token=x".into()).await, "20");
    limited(&here().post("/user/refresh", &serde_json::json!({ "refreshToken": pair.refresh })).await, "20");
    limited(&here().get("/status/200").await, "20");
    assert_eq!(here().get("/").await.status, 200, "other requests are not calls on tokens");
    assert_eq!(form(here(), "/oauth/introspect", format!("token={}", pair.access)).await.status, 200);
    assert_eq!(form(from(&gateway, "192.0.2.2"), "/oauth/revoke", "token=x".into()).await.status, 200);
    gateway.advance(20 * SECOND);
    here().delete("/token/x").await.assert_rejected(404, "token_not_found");
    limited(&here().delete("/token/x").await, "20");
    gateway.wait_for_metric("rejections_total{reason=\"address_limited\"}", 6).await;
    assert_eq!(upstream.seen().len(), 1, "no backend was bothered with what was refused");
}

#[tokio::test]
async fn whoever_guesses_is_stopped_and_whoever_shows_a_good_token_is_not() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 3", DOORS);
    let pair = gateway.issue("alice", "").await;
    let here = || from(&gateway, "2001:db8:0:1::1");
    exchange(here(), &forged_refresh(&pair.token_id)).await.assert_rejected(400, "invalid_grant");
    here().delete("/token/x").await.assert_rejected(401, "unauthorized");
    assert_eq!(here().get("/status/401").await.status, 401, "a password that was wrong");

    let reached = upstream.seen().len();
    for path in ["/oauth/token", "/oauth/revoke"] {
        limited(&form(here(), path, "token=x".into()).await, "20");
    }
    // The customer has the whole /64.
    limited(&from(&gateway, "2001:db8:0:1::ffff").get("/status/200").await, "20");
    assert_eq!(upstream.seen().len(), reached, "and no password more is tried");
    form(here().bearer(&pair.access), "/oauth/introspect", "token=x".into())
        .await
        .assert_rejected(403, "insufficient_scope");
    assert_eq!(here().bearer(&pair.access).get("/").await.status, 200);
    let next =
        here().bearer(&pair.access).post("/user/refresh", &serde_json::json!({ "refreshToken": pair.refresh })).await;
    assert_eq!(next.status, 200, "neighbours lock nobody out who has a token: {next:?}");
    assert_eq!(from(&gateway, "2001:db8:0:2::1").get("/status/401").await.status, 401);

    gateway.advance(20 * SECOND);
    assert_eq!(here().get("/status/401").await.status, 401);
    limited(&here().get("/status/401").await, "20");
    gateway.wait_for_metric("rejections_total{reason=\"failures_limited\"}", 4).await;
}

#[tokio::test]
async fn good_calls_are_no_failures() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 1", DOORS);
    let mut refresh = gateway.issue("alice", "").await.refresh;
    for _ in 0..5 {
        let answer = exchange(gateway.client(), &refresh).await;
        answer.json()["refresh_token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).clone_into(&mut refresh);
        assert_eq!(form(gateway.client(), "/oauth/revoke", "token=x".into()).await.status, 200);
        assert_eq!(gateway.client().get("/status/204").await.status, 204);
    }
}

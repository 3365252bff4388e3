//! `[throttle]`: how often token calls may be made. A client cannot use up the limits of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::ports::ClosedPort;
use crate::support::tokens::forged_refresh;
use crate::support::wait::eventually;
use crate::support::{Client, Gateway, ScriptedBackend, TestResponse, TokenPair, Upstream};

const TOKEN_CALLS: &str = r#"
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

/// A client with another address.
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
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(response.status, 200, "{response:?}");
    TokenPair::from_json(&response.json())
}

#[track_caller]
fn assert_limited(response: &TestResponse, seconds: &str) {
    assert_limited_as("rate_limited", response, seconds);
}

/// OAuth clients have the user log in again after other errors of the token endpoint.
#[track_caller]
fn assert_token_endpoint_limited(response: &TestResponse, seconds: &str) {
    assert_limited_as("temporarily_unavailable", response, seconds);
}

#[track_caller]
fn assert_limited_as(error: &str, response: &TestResponse, seconds: &str) {
    response.assert_rejected(429, error);
    assert_eq!(response.header("retry-after"), Some(seconds), "{response:?}");
}

#[tokio::test]
async fn a_family_refreshes_ten_times_then_once_in_five_seconds() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "", TOKEN_CALLS);
    let (mut pair, sibling) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    for _ in 0..10 {
        pair = refreshed(&gateway, &pair).await;
    }
    assert_limited(&gateway.refresh(&pair.access, &pair.refresh).await, "5");
    assert_token_endpoint_limited(&exchange(gateway.client(), &pair.refresh).await, "5");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "its tokens stay valid");
    refreshed(&gateway, &sibling).await;
    assert_eq!(gateway.revoke(&sibling.access, &pair.token_id).await.status, 200, "it can be revoked");
    gateway.wait_for_metric("rejections_total{reason=\"family_limited\"}", 2).await;

    let mut pair = gateway.issue("alice", "").await;
    for _ in 0..10 {
        pair = refreshed(&gateway, &pair).await;
    }
    gateway.advance(5 * SECOND);
    pair = refreshed(&gateway, &pair).await;
    assert_limited(&gateway.refresh(&pair.access, &pair.refresh).await, "5");
    gateway.drain_and_check_log();
}

/// Forty refreshes at the same time use up the burst, and no more than that.
#[tokio::test]
async fn after_a_refresh_storm_the_client_waits_five_seconds() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "", TOKEN_CALLS);
    let pair = gateway.issue("alice", "").await;
    let storm = futures_util::future::join_all((0..40).map(|_| gateway.refresh(&pair.access, &pair.refresh))).await;
    let statuses: Vec<u16> = storm.iter().map(|response| response.status.as_u16()).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 200).count() >= 10, "{statuses:?}");
    gateway.advance(5 * SECOND);
    refreshed(&gateway, &pair).await;
}

/// Each service that sees an access token knows its tokenId.
#[tokio::test]
async fn a_token_id_alone_cannot_use_up_the_refreshes() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 0", TOKEN_CALLS);
    let (alice, mallory) = (gateway.issue("alice", "").await, gateway.issue("mallory", "").await);
    let forged = forged_refresh(&alice.token_id);
    for _ in 0..20 {
        exchange(gateway.client(), &forged).await.assert_rejected(400, "invalid_grant");
        gateway.refresh(&mallory.access, &forged).await.assert_rejected(400, "invalid_grant");
    }
    refreshed(&gateway, &alice).await;
}

#[tokio::test]
async fn each_address_has_its_own_limit_of_token_calls() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 3\nfailures = 0", TOKEN_CALLS);
    let pair = gateway.issue("alice", "token:introspect").await;
    let here = || from(&gateway, "192.0.2.1").bearer(&pair.access);
    let first = exchange(here(), &pair.refresh).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(form(here(), "/oauth/revoke", "token=x".into()).await.status, 200);
    here().delete("/token/x").await.assert_rejected(404, "token_not_found");

    assert_limited(&here().delete("/token/x").await, "20");
    assert_token_endpoint_limited(&exchange(here(), &pair.refresh).await, "20");
    assert_limited(&form(here(), "/oauth/revoke", "token=x".into()).await, "20");
    assert_limited(&here().post("/user/refresh", &serde_json::json!({ "refreshToken": pair.refresh })).await, "20");
    assert_limited(&here().get("/status/200").await, "20");
    assert_eq!(here().get("/").await.status, 200, "other requests are no token calls");
    assert_eq!(form(here(), "/oauth/introspect", format!("token={}", pair.access)).await.status, 200);
    assert_eq!(form(from(&gateway, "192.0.2.2"), "/oauth/revoke", "token=x".into()).await.status, 200);
    gateway.advance(20 * SECOND);
    here().delete("/token/x").await.assert_rejected(404, "token_not_found");
    assert_limited(&here().delete("/token/x").await, "20");
    gateway.wait_for_metric("rejections_total{reason=\"address_limited\"}", 6).await;
    assert_eq!(upstream.seen().len(), 1, "no rejected request reached a backend");
}

#[tokio::test]
async fn failed_calls_are_limited_unless_the_token_is_valid() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 3", TOKEN_CALLS);
    let pair = gateway.issue("alice", "").await;
    let here = || from(&gateway, "2001:db8:0:1::1");
    exchange(here(), &forged_refresh(&pair.token_id)).await.assert_rejected(400, "invalid_grant");
    here().delete("/token/x").await.assert_rejected(401, "unauthorized");
    assert_eq!(here().get("/status/401").await.status, 401, "a wrong password");

    let reached = upstream.seen().len();
    assert_token_endpoint_limited(&form(here(), "/oauth/token", "token=x".into()).await, "20");
    assert_limited(&form(here(), "/oauth/revoke", "token=x".into()).await, "20");
    // An IPv6 client has the whole /64.
    assert_limited(&from(&gateway, "2001:db8:0:1::ffff").get("/status/200").await, "20");
    assert_eq!(upstream.seen().len(), reached, "no further password is tried");
    form(here().bearer(&pair.access), "/oauth/introspect", "token=x".into())
        .await
        .assert_rejected(403, "insufficient_scope");
    assert_eq!(here().bearer(&pair.access).get("/").await.status, 200);
    let next =
        here().bearer(&pair.access).post("/user/refresh", &serde_json::json!({ "refreshToken": pair.refresh })).await;
    assert_eq!(next.status, 200, "a neighbour cannot lock out a client with a token: {next:?}");
    assert_eq!(from(&gateway, "2001:db8:0:2::1").get("/status/401").await.status, 401);

    gateway.advance(20 * SECOND);
    assert_eq!(here().get("/status/401").await.status, 401);
    assert_limited(&here().get("/status/401").await, "20");
    gateway.wait_for_metric("rejections_total{reason=\"failures_limited\"}", 4).await;
}

#[tokio::test]
async fn successful_calls_do_not_count_as_failures() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "failures = 1", TOKEN_CALLS);
    let mut refresh = gateway.issue("alice", "").await.refresh;
    for _ in 0..5 {
        let response = exchange(gateway.client(), &refresh).await;
        response.json()["refresh_token"].as_str().unwrap_or_else(|| panic!("{response:?}")).clone_into(&mut refresh);
        assert_eq!(form(gateway.client(), "/oauth/revoke", "token=x".into()).await.status, 200);
        assert_eq!(gateway.client().get("/status/204").await.status, 204);
    }
}

/// A backend that checks passwords slowly: it responds with this status when the gate is opened.
fn slow_login(status: &'static str) -> (ScriptedBackend, Arc<AtomicUsize>, watch::Sender<bool>) {
    let (reached, gate) = (Arc::<AtomicUsize>::default(), watch::Sender::new(false));
    let (count, opened) = (reached.clone(), gate.subscribe());
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let (count, mut opened) = (count.clone(), opened.clone());
        async move {
            while wire.try_read_until("\r\n\r\n").await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = opened.wait_for(|is_open| *is_open).await;
                wire.send(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")).await;
            }
        }
    });
    (backend, reached, gate)
}

fn log_ins(gateway: &Gateway, count: usize) -> JoinSet<TestResponse> {
    let login = |_| {
        let client = from(gateway, "192.0.2.1");
        async move { client.get("/status/login").await }
    };
    (0..count).map(login).collect()
}

async fn statuses(mut responses: JoinSet<TestResponse>) -> Vec<u16> {
    let mut statuses = Vec::new();
    while let Some(response) = responses.join_next().await {
        statuses.push(response.expect("no panic").status.as_u16());
    }
    statuses
}

/// A failure that counts only after the response would let all of them through.
#[tokio::test]
async fn guesses_at_the_same_time_are_limited() {
    const GUESSES: usize = 376;
    let (backend, reached, gate) = slow_login("401 Unauthorized");
    let gateway = Gateway::with_throttle(backend.address, "calls = 0", TOKEN_CALLS);
    let guessing = log_ins(&gateway, GUESSES);
    gateway.wait_for_metric("rejections_total{reason=\"failures_limited\"}", (GUESSES - 20) as u64).await;
    eventually("twenty guesses reach the backend", || reached.load(Ordering::SeqCst) == 20).await;
    gate.send_replace(true);
    let statuses = statuses(guessing).await;
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 20, "{statuses:?}");
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    assert_limited(&from(&gateway, "192.0.2.1").get("/status/login").await, "3");
    assert_eq!(from(&gateway, "192.0.2.2").get("/status/login").await.status, 401, "another address");
    assert_eq!(reached.load(Ordering::SeqCst), 21);
}

#[tokio::test]
async fn successful_logins_at_the_same_time_are_not_limited() {
    let (backend, reached, gate) = slow_login("200 OK");
    let gateway = Gateway::with_throttle(backend.address, "calls = 0", TOKEN_CALLS);
    for round in 1..=3 {
        gate.send_replace(false);
        let logging_in = log_ins(&gateway, 20);
        eventually("all logins reach the backend", || reached.load(Ordering::SeqCst) == 20 * round).await;
        gate.send_replace(true);
        assert_eq!(statuses(logging_in).await, [200; 20]);
    }
}

/// The backend has the guess, whether the client waits for the response or not.
#[tokio::test]
async fn a_guess_of_a_client_that_disconnects_counts() {
    let (backend, reached, gate) = slow_login("401 Unauthorized");
    let gateway = Gateway::with_throttle(backend.address, "calls = 0\nfailures = 3", TOKEN_CALLS);
    for guess in 1..=3 {
        let guessing = log_ins(&gateway, 1);
        eventually("the guess reaches the backend", || reached.load(Ordering::SeqCst) == guess).await;
        drop(guessing);
        gateway.wait_for_metric("requests_in_flight", 0).await;
    }
    gate.send_replace(true);
    assert_limited(&from(&gateway, "192.0.2.1").get("/status/login").await, "20");
}

/// The client is not at fault.
#[tokio::test]
async fn a_login_without_a_backend_does_not_count() {
    let closed = ClosedPort::new();
    let gateway = Gateway::with_throttle(closed.address, "calls = 0\nfailures = 2", TOKEN_CALLS);
    for _ in 0..5 {
        assert_eq!(from(&gateway, "192.0.2.1").get("/status/login").await.status, 502);
    }
}

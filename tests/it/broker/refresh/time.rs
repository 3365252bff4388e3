//! The time that counts for a refresh: that of its transaction, not that of its head, and not that of a clock set back.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::PresentedToken;
use bearward::tokens::family::rotation::Rotation;
use bearward::types::reject::Reason;
use serde_json::json;

use super::{gateway_with_tokens, listed, pair_of, refreshed};
use crate::support::given::{LOGIN, login, token};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream, Wire};

const AFTER_GRACE: Duration = Duration::from_millis(10_001);
const HOUR: Duration = Duration::from_secs(3_600);

/// The session in generation 2, confirmed: its spent parent and its newest pair.
async fn spent_and_newest(gateway: &Gateway) -> (TokenPair, TokenPair) {
    let spent = gateway.issue("alice", "").await;
    let newest = refreshed(gateway, &spent).await;
    assert_eq!(gateway.status_of(&newest.access).await, 200);
    (spent, newest)
}

async fn assert_reuse_ends_the_session(gateway: &Gateway, newest: &TokenPair) {
    assert_eq!(gateway.status_of(&newest.access).await, 401);
    gateway.refresh(&newest.access, &newest.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(listed(gateway, newest, "alice").await["state"], "revoked");
    eventually_ok("an audit event reports the reuse", async || {
        let events = gateway.audit_events(1).await;
        let found = events.iter().any(|event| event["event"] == "refresh.reuse_detected");
        if found { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
}

/// Sends the head of a refresh and the first byte of its body. Returns the connection and the rest of the body.
async fn begin(gateway: &Gateway, bearer: &str, refresh: &str) -> (Wire, String) {
    let body = format!("{{\"refreshToken\":\"{refresh}\"}}");
    let mut wire = Wire::connect(gateway.address()).await;
    let head = format!(
        "POST /user/refresh HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{",
        body.len()
    );
    wire.send(head).await;
    (wire, body[1..].to_owned())
}

fn gateway_with_audit(upstream: &Upstream, keys: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), "[audit]\nfile = \"audit.jsonl\"\n");
    Gateway::from_text(text.replace("[tokens]\n", &format!("[tokens]\n{keys}\n")))
}

/// A thief begins the request within the grace period and sends the end of its body after it.
#[tokio::test]
async fn a_body_that_ends_after_the_grace_is_reuse() {
    let upstream = Upstream::start();
    let gateway = gateway_with_audit(&upstream, "");
    let (spent, newest) = spent_and_newest(&gateway).await;
    let (mut thief, rest) = begin(&gateway, &newest.access, &spent.refresh).await;
    gateway.wait_for_metric("requests_in_flight", 1).await;
    gateway.advance(AFTER_GRACE);
    thief.send(rest).await;
    let response = thief.read_response().await;
    assert_eq!(response.status, 400, "{response:?}");
    let lines = gateway.log_lines(3).await;
    assert!(lines.iter().any(|line| line["reason"] == "grant_reused"), "{lines:?}");
    assert_reuse_ends_the_session(&gateway, &newest).await;
}

/// The same with a body that ends in time: a client on a slow network.
#[tokio::test]
async fn a_slow_body_that_ends_within_the_grace_is_repeated() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (spent, newest) = spent_and_newest(&gateway).await;
    let (mut client, rest) = begin(&gateway, &newest.access, &spent.refresh).await;
    gateway.wait_for_metric("requests_in_flight", 1).await;
    gateway.advance(Duration::from_secs(10));
    client.send(rest).await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(gateway.status_of(&newest.access).await, 200);
}

#[tokio::test]
async fn a_clock_set_back_does_not_prolong_the_grace() {
    let upstream = Upstream::start();
    let gateway = gateway_with_audit(&upstream, "");
    let (spent, newest) = spent_and_newest(&gateway).await;
    // Dated before the step, so that it is valid after it.
    gateway.clock.set_back(Duration::from_secs(4));
    let response = gateway.refresh(&newest.access, &spent.refresh).await;
    assert_eq!(pair_of(&response).refresh, newest.refresh, "the grace is as long as ever");
    gateway.advance(AFTER_GRACE);
    gateway.clock.set_back(HOUR);
    gateway.refresh(&newest.access, &spent.refresh).await.assert_rejected(400, "invalid_grant");
    assert_reuse_ends_the_session(&gateway, &newest).await;
}

/// The rotation lies ahead of the clock of the new process, so the time since then is not known.
#[tokio::test]
async fn a_clock_set_back_during_a_restart_closes_the_grace() {
    let upstream = Upstream::start();
    let gateway = gateway_with_audit(&upstream, "");
    let (spent, newest) = spent_and_newest(&gateway).await;
    gateway.clock.set_back(Duration::from_secs(4));
    let gateway = gateway.restart();
    gateway.refresh(&newest.access, &spent.refresh).await.assert_rejected(400, "invalid_grant");
    assert_reuse_ends_the_session(&gateway, &newest).await;
}

/// Blocks the thread of the store until the result is dropped.
fn hold_store(gateway: &Gateway) -> mpsc::Sender<()> {
    let (hold, dropped) = mpsc::channel::<()>();
    let dropped = Mutex::new(dropped);
    let wait = move |_: Option<&Family>, _, _: &PresentedToken, _| {
        let _ = dropped.lock().expect("not poisoned").recv();
        Rotation::Rejected(Reason::GrantUnknown)
    };
    drop(gateway.running().broker.store.rotate(token(&login("unused", LOGIN), 1), Box::new(wait), LOGIN.into()));
    hold
}

/// Its client has got 503, and has repeated the request with its new token.
#[tokio::test]
async fn a_refresh_that_the_store_reaches_too_late_ends_no_session() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[timeouts]\nstore = \"300ms\"\n");
    let (spent, newest) = spent_and_newest(&gateway).await;
    let hold = hold_store(&gateway);
    let response = gateway.refresh(&newest.access, &spent.refresh).await;
    response.assert_rejected(503, "temporarily_unavailable");
    gateway.advance(AFTER_GRACE);
    drop(hold);
    assert_eq!(gateway.refresh(&newest.access, &newest.refresh).await.status, 200, "the session goes on");
    assert_eq!(gateway.status_of(&newest.access).await, 200);
}

/// Its client knows only the session that the login would have ended.
#[tokio::test]
async fn a_login_that_the_store_reaches_too_late_ends_no_session() {
    let upstream = Upstream::start();
    let keys = "[timeouts]\nstore = \"300ms\"\n[limits]\nsessions_per_subject = 1\n";
    let gateway = Gateway::with_config(&upstream, keys);
    let first = gateway.issue("alice", "").await;
    let hold = hold_store(&gateway);
    let login = json!({ "subject": "alice", "scope": "" });
    let response = gateway.admin_client().post("/admin/v1/tokens", &login).await;
    assert_eq!(response.status, 503, "{response:?}");
    drop(hold);
    refreshed(&gateway, &first).await;
    let second = gateway.issue("alice", "").await;
    refreshed(&gateway, &second).await;
    assert_eq!(gateway.status_of(&first.access).await, 401, "a login in time ends it");
}

#[tokio::test]
async fn a_refresh_grace_of_zero_is_none() {
    let upstream = Upstream::start();
    let gateway = gateway_with_audit(&upstream, "refresh_grace = \"0s\"");
    let (spent, newest) = spent_and_newest(&gateway).await;
    gateway.refresh(&newest.access, &spent.refresh).await.assert_rejected(400, "invalid_grant");
    assert_reuse_ends_the_session(&gateway, &newest).await;
}

#[tokio::test]
async fn the_body_of_a_token_call_has_a_time_limit() {
    const LIMIT: Duration = Duration::from_millis(300);
    let upstream = Upstream::start();
    let more = "[timeouts]\ntoken_call_body = \"300ms\"\n[oauth]\ntoken_endpoint = \"/oauth/token\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let pair = gateway.issue("alice", "").await;
    let (mut slow, rest) = begin(&gateway, &pair.access, &pair.refresh).await;
    let mut form = Wire::connect(gateway.address()).await;
    form.send("POST /oauth/token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ngrant").await;
    let started = Instant::now();
    // Each byte is in time for `timeouts.body_idle`.
    for byte in rest.as_bytes() {
        if started.elapsed() > LIMIT || slow.try_send([*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for mut wire in [slow, form] {
        let response = wire.read_response().await;
        assert_eq!(response.status, 408, "{response:?}");
        wire.read_to_end().await;
    }
    let lines = gateway.log_lines(2).await;
    assert!(lines.iter().all(|line| line["reason"] == "body_timeout"), "{lines:?}");
    let detail = "not complete within timeouts.token_call_body";
    assert!(lines.iter().all(|line| line["detail"] == detail), "{lines:?}");
    refreshed(&gateway, &pair).await;
    let unlimited = gateway_with_tokens(&upstream, "");
    assert_eq!(unlimited.config().connections.token_call_body, Duration::from_secs(5), "by default");
}

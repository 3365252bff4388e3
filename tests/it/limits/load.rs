//! So many requests at once, and what is kept for those who would refresh or log out.

use std::cell::Cell;

use http::Request;
use serde_json::json;

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, HEADERS, SETTINGS};
use crate::support::wait::eventually;
use crate::support::{Gateway, HonestClient, TokenPair, Upstream, Wire};

/// One worker, as each has its share.
fn narrow(upstream: &Upstream, more: &str) -> Gateway {
    let text =
        Gateway::config_text(&upstream.address.to_string(), &format!("[limits]\nconcurrent_requests = 10\n{more}"));
    Gateway::from_text(text.replace("workers = 2", "workers = 1"))
}

/// An attacker has ten requests hang, each with a good token; what comes then is told to come again.
#[tokio::test]
async fn what_is_more_than_the_gateway_takes_is_refused_at_once_and_logins_go_on() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "reserve_percent = 0");
    let (mallory, alice) = (gateway.issue("mallory", "").await, gateway.issue("alice", "").await);
    let mut attacker = HttpConnection::http2(gateway.address()).await;
    let hang = || Request::get("/hang").header("authorization", format!("Bearer {}", mallory.access));
    let hanging: Vec<_> = (0..10)
        .map(|_| tokio::spawn(attacker.sender().send(hang().body(connection::empty()).expect("a request"))))
        .collect();
    eventually("ten are under way", || upstream.in_flight() == 10).await;
    assert_eq!(gateway.metric("bearward_requests_in_flight ").await, 10.0);

    for client in gateway.clients() {
        let client = client.bearer(&alice.access);
        // Beside the path of a logout, and none: a backend would answer them.
        for path in ["/", "/token/", "/token/a/b"] {
            let refused = client.get(path).await;
            refused.assert_rejected(503, "temporarily_unavailable");
            assert_eq!(refused.header("retry-after"), Some("1"), "{path}: {refused:?}");
        }
    }
    let full = attacker.send(hang().body(connection::empty()).expect("a request")).await;
    assert_eq!(full.status(), 503, "the attacker's share is no larger");
    // The answer comes before the body does, and nothing waits for that.
    let mut uploading = Wire::connect(gateway.address()).await;
    uploading.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    let refused = uploading.read_response().await;
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));

    // Who takes no refusal has no place by it.
    let no_room = frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let more = (1..40).step_by(2).flat_map(|stream| frames::get(stream, "/")).collect();
    let mut deaf = frames::connect(gateway.address(), &[frames::connection_preface(), no_room, more]).await;
    for _ in 0..20 {
        frames::next(&mut deaf, &[HEADERS]).await;
    }
    assert_eq!(gateway.metric("bearward_requests_in_flight ").await, 10.0);
    // While it asks on as fast as it is refused.
    let (refreshed, mut refused) = (Cell::new(0), 14 + 20);
    let asking_on = async {
        while refreshed.get() < 5 {
            let full = attacker.send(hang().body(connection::empty()).expect("a request")).await;
            assert_eq!(full.status(), 503);
            refused += 1;
        }
    };
    let refreshing = async {
        let mut pair = alice.clone();
        for _ in 0..5 {
            let next = gateway.refresh(&pair.access, &pair.refresh).await;
            assert_eq!(next.status, 200, "a refresh has priority: {next:?}");
            pair = TokenPair::from_json(&next.json());
            refreshed.set(refreshed.get() + 1);
        }
    };
    tokio::join!(asking_on, refreshing);
    drop(deaf);
    assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200, "and so has a logout");
    assert_eq!(upstream.seen().len(), 10, "no backend was bothered");
    gateway.wait_for_metric("rejections_total{reason=\"overloaded\"}", refused).await;

    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    attacker.abort();
    eventually("the requests are over", || upstream.in_flight() == 0).await;
    gateway.wait_for_metric("requests_in_flight", 0).await;
    assert_eq!(gateway.status_of(&mallory.access).await, 200);
}

/// The reserve has an end as well.
#[tokio::test]
async fn calls_on_tokens_have_a_tenth_and_no_more() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "reserve_percent = 0\n[timeouts]\nbody_idle = \"5s\"");
    let alice = gateway.issue("alice", "").await;
    let mut held = Vec::new();
    // Calls whose bodies never come: ten of the share, one of the reserve.
    for _ in 0..11 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send("POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{").await;
        held.push(wire);
    }
    gateway.wait_for_metric("requests_in_flight", 11).await;
    let refused = gateway.client().bearer(&alice.access).post("/user/refresh", &json!({})).await;
    refused.assert_rejected(503, "temporarily_unavailable");
    drop(held);
    gateway.wait_for_metric("requests_in_flight", 0).await;
    assert_eq!(gateway.refresh(&alice.access, &alice.refresh).await.status, 200);
}

/// Of ten, two are kept back, and the attacker gets one of these at the most.
#[tokio::test]
async fn an_address_with_many_requests_leaves_room_for_others() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "");
    let alice = gateway.issue("alice", "").await;
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", alice.access);
    let mut attackers = Vec::new();
    for number in 0..9 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send(get("/hang")).await;
        attackers.push(wire);
        gateway.wait_for_metric("requests_in_flight", number + 1).await;
    }
    // Whose place was kept back.
    let mut honest = HonestClient::connect(&gateway).await.bearer(&alice.access);
    let mut refused = 0;
    honest
        .assert_served_during(async || {
            let mut one_more = Wire::connect(gateway.address()).await;
            one_more.send(get("/hang")).await;
            assert_eq!(one_more.read_response().await.status, 503, "it has enough");
            refused += 1;
        })
        .await;
    // Nor does it get at what is kept for calls on tokens, which others need.
    let mut call = Wire::connect(gateway.address()).await;
    call.send("POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{").await;
    assert_eq!(call.read_response().await.status, 503);
    gateway.wait_for_metric("rejections_total{reason=\"overloaded\"}", refused + 1).await;

    drop(attackers);
    gateway.wait_for_metric("requests_in_flight", 0).await;
    honest.assert_served().await;
}

//! Maximum concurrent requests, and the reserve for refreshes and logouts.

use std::cell::Cell;

use http::Request;
use serde_json::json;

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, HEADERS, SETTINGS};
use crate::support::wait::eventually;
use crate::support::{Gateway, HonestClient, TokenPair, Upstream, Wire};

/// One worker, because each worker has its part of the limit.
fn narrow(upstream: &Upstream, more: &str) -> Gateway {
    let text =
        Gateway::config_text(&upstream.address.to_string(), &format!("[limits]\nconcurrent_requests = 10\n{more}"));
    Gateway::from_text(text.replace("workers = 2", "workers = 1"))
}

/// The attacker has ten requests in flight, each with a valid token. The gateway rejects all others as overloaded.
#[tokio::test]
async fn an_overloaded_gateway_still_refreshes_and_revokes() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "reserve_percent = 0");
    let (mallory, alice) = (gateway.issue("mallory", "").await, gateway.issue("alice", "").await);
    let mut attacker = HttpConnection::http2(gateway.address()).await;
    let hang = || Request::get("/hang").header("authorization", format!("Bearer {}", mallory.access));
    let hanging: Vec<_> = (0..10)
        .map(|_| tokio::spawn(attacker.sender().send(hang().body(connection::empty()).expect("a request"))))
        .collect();
    eventually("ten requests are in flight", || upstream.in_flight() == 10).await;
    assert_eq!(gateway.metric("bearward_requests_in_flight ").await, 10.0);

    for client in gateway.clients() {
        let client = client.bearer(&alice.access);
        // The last two are close to the path of a logout, but belong to the backend.
        for path in ["/", "/token/", "/token/a/b"] {
            let rejected = client.get(path).await;
            rejected.assert_rejected(503, "temporarily_unavailable");
            assert_eq!(rejected.header("retry-after"), Some("1"), "{path}: {rejected:?}");
        }
    }
    let response = attacker.send(hang().body(connection::empty()).expect("a request")).await;
    assert_eq!(response.status(), 503, "the attacker has no larger part");
    // The response comes before the body, and nothing waits for the body.
    let mut uploading = Wire::connect(gateway.address()).await;
    uploading.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    let rejected = uploading.read_response().await;
    assert_eq!((rejected.status, rejected.header("connection")), (503, Some("close")));

    // A client that does not read its rejection holds no slot.
    let no_window = frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let more = (1..40).step_by(2).flat_map(|stream| frames::get(stream, "/")).collect();
    let mut unread = frames::connect(gateway.address(), &[frames::connection_preface(), no_window, more]).await;
    for _ in 0..20 {
        frames::next(&mut unread, &[HEADERS]).await;
    }
    assert_eq!(gateway.metric("bearward_requests_in_flight ").await, 10.0);
    // The attacker repeats its request as fast as it is rejected.
    let (refreshed, mut rejected) = (Cell::new(0), 14 + 20);
    let attack = async {
        while refreshed.get() < 5 {
            let response = attacker.send(hang().body(connection::empty()).expect("a request")).await;
            assert_eq!(response.status(), 503);
            rejected += 1;
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
    tokio::join!(attack, refreshing);
    drop(unread);
    assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200, "a logout has priority");
    assert_eq!(upstream.seen().len(), 10, "no rejected request reached a backend");
    gateway.wait_for_metric("rejections_total{reason=\"overloaded\"}", rejected).await;

    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    attacker.abort();
    eventually("the requests are done", || upstream.in_flight() == 0).await;
    gateway.wait_for_metric("requests_in_flight", 0).await;
    assert_eq!(gateway.status_of(&mallory.access).await, 200);
}

/// The reserve is limited, too.
#[tokio::test]
async fn token_calls_have_a_tenth_as_their_reserve() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "reserve_percent = 0\n[timeouts]\nbody_idle = \"5s\"");
    let alice = gateway.issue("alice", "").await;
    let mut held = Vec::new();
    // Calls without a body: ten within the limit, one in the reserve.
    for _ in 0..11 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send("POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{").await;
        held.push(wire);
    }
    gateway.wait_for_metric("requests_in_flight", 11).await;
    let rejected = gateway.client().bearer(&alice.access).post("/user/refresh", &json!({})).await;
    rejected.assert_rejected(503, "temporarily_unavailable");
    drop(held);
    gateway.wait_for_metric("requests_in_flight", 0).await;
    assert_eq!(gateway.refresh(&alice.access, &alice.refresh).await.status, 200);
}

/// The rejection for overload would keep the connection open.
#[tokio::test]
async fn a_malformed_request_ends_its_connection_under_overload() {
    let upstream = Upstream::start();
    let gateway = narrow(&upstream, "");
    let alice = gateway.issue("alice", "").await;
    let hang = format!("GET /hang HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", alice.access);
    let mut held = Vec::new();
    for number in 0..9 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send(&hang).await;
        held.push(wire);
        gateway.wait_for_metric("requests_in_flight", number + 1).await;
    }
    let next = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut wire = Wire::connect(gateway.address()).await;
    wire.send(next).await;
    assert_eq!(wire.read_response().await.status, 503);
    wire.send(["GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", next].concat()).await;
    assert_eq!(wire.read_response().await.status, 400);
    assert_eq!(wire.read_to_end().await, "", "nothing more is read");
}

/// Of ten slots, two are reserved, and the attacker gets at most one of them.
#[tokio::test]
async fn an_address_with_many_requests_leaves_slots_for_others() {
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
    // It gets a reserved slot.
    let mut honest = HonestClient::connect(&gateway).await.bearer(&alice.access);
    let mut rejected = 0;
    honest
        .assert_served_during(async || {
            let mut one_more = Wire::connect(gateway.address()).await;
            one_more.send(get("/hang")).await;
            assert_eq!(one_more.read_response().await.status, 503, "the attacker has its maximum");
            rejected += 1;
        })
        .await;
    // The attacker gets no slot of the reserve for token calls either.
    let mut call = Wire::connect(gateway.address()).await;
    call.send("POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{").await;
    assert_eq!(call.read_response().await.status, 503);
    gateway.wait_for_metric("rejections_total{reason=\"overloaded\"}", rejected + 1).await;

    drop(attackers);
    gateway.wait_for_metric("requests_in_flight", 0).await;
    honest.assert_served().await;
}

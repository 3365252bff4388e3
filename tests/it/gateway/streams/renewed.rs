//! A refresh does not end a stream. Using the new access token extends it.

use futures_util::FutureExt;
use http::Request;
use serde_json::json;

use super::*;
use crate::support::TokenPair;
use crate::support::clock::ManualClock;
use crate::support::connection::{self, HttpConnection, next_chunk};
use crate::support::tokens::claims_of;

#[tokio::test]
async fn a_refresh_alone_neither_ends_nor_extends_a_stream() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &first.access).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(gateway.refresh(&first.access, &first.refresh).await.status, 200);
    gateway.wait_for_metric("streams_opened_total", 1).await;
    assert_open(&mut socket).await;
    gateway.advance(Duration::from_mins(6));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, expired());
}

#[tokio::test]
async fn using_a_new_token_extends_the_streams_of_its_family() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let mut socket = open(&gateway, &first.access).await;
    let mut witness = open(&gateway, &bob.access).await;
    gateway.advance(Duration::from_mins(10));
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(gateway.status_of(&second.access).await, 200);

    gateway.advance(Duration::from_mins(6));
    assert_eq!(close_frame(&mut witness).await, expired(), "not refreshed");
    assert_open(&mut socket).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, expired(), "the second token has expired too");
}

#[tokio::test]
async fn a_new_token_extends_streams_also_after_the_clock_was_set() {
    let upstream = Upstream::start();
    for step in [ManualClock::set_back, ManualClock::set_forward] {
        let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
        let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
        let mut socket = open(&gateway, &first.access).await;
        let mut witness = open(&gateway, &bob.access).await;
        gateway.advance(Duration::from_mins(10));
        step(&gateway.clock, Duration::from_secs(30));
        let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
        assert_eq!(gateway.status_of(&second.access).await, 200);
        gateway.advance(Duration::from_mins(7));
        assert_eq!(close_frame(&mut witness).await, expired(), "not refreshed");
        assert_open(&mut socket).await;
    }
}

/// The new token reaches one worker. The kernel distributes the streams over both.
#[tokio::test]
async fn a_new_token_extends_streams_of_other_workers() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let (mut sockets, mut witnesses) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        sockets.push(open(&gateway, &first.access).await);
        witnesses.push(open(&gateway, &bob.access).await);
    }
    gateway.advance(Duration::from_mins(10));
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(gateway.status_of(&second.access).await, 200);

    gateway.advance(Duration::from_mins(6));
    for witness in &mut witnesses {
        assert_eq!(close_frame(witness).await, expired(), "not refreshed");
    }
    for socket in &mut sockets {
        assert_open(socket).await;
    }
}

#[tokio::test]
async fn revoking_the_old_or_the_new_token_ends_the_stream() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    for which in ["first", "second", "both"] {
        let first = gateway.issue("alice", "").await;
        let mut socket = open(&gateway, &first.access).await;
        let mut witness = open(&gateway, &gateway.issue("bob", "").await.access).await;
        gateway.advance(Duration::from_mins(10));
        let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
        assert_eq!(gateway.status_of(&second.access).await, 200);
        gateway.advance(Duration::from_mins(6));
        assert_eq!(close_frame(&mut witness).await, expired(), "{which}");
        assert_open(&mut socket).await;
        match which {
            "both" => assert_eq!(gateway.revoke(&second.access, &second.token_id).await.status, 200),
            _ => {
                let jti = claims_of(if which == "first" { &first.access } else { &second.access })["jti"].clone();
                let response = gateway.admin_client().post("/admin/v1/revocations", &json!({ "jti": jti })).await;
                assert_eq!(response.status, 200, "{response:?}");
            }
        }
        assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked(), "{which}");
    }
}

/// The new token is used before the response is long enough in flight to count as a stream.
#[tokio::test]
async fn a_new_token_extends_a_stream_that_has_just_started() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        let head_of_request = wire.read_until("\r\n\r\n").await;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        if head_of_request.starts_with("GET /events ") {
            wire.send(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
            return drop(wire.read_to_end().await);
        }
        wire.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    });
    let gateway = gateway_of_one_worker(&backend.address.to_string(), "");
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    gateway.advance(Duration::from_mins(10));
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let mut subscribe = async |token: &str| {
        let request = Request::get("/events").header("authorization", format!("Bearer {token}"));
        connection.send(request.body(connection::empty()).expect("a request")).await.into_body()
    };
    let (mut events, mut witness) = (subscribe(&first.access).await, subscribe(&bob.access).await);
    assert_eq!(gateway.status_of(&second.access).await, 204);
    for events in [&mut events, &mut witness] {
        assert_eq!(next_chunk(events).await.expect("an event"), "data: 1\n\n");
    }
    gateway.wait_for_metric("streams_opened_total", 2).await;
    gateway.advance(Duration::from_mins(6));
    assert!(next_chunk(&mut witness).await.is_none(), "no new token");
    assert!(next_chunk(&mut events).now_or_never().is_none(), "the stream is open");
    gateway.wait_for_metric("streams_closed_total", 1).await;
    gateway.advance(Duration::from_mins(10));
    assert!(within_a_second(next_chunk(&mut events)).await.is_none());
}

//! A refresh ends no stream, and a fresh token that is used carries it on.

use futures_util::FutureExt;
use http::Request;
use serde_json::json;

use super::*;
use crate::support::Pair;
use crate::support::session::{self, Session, next_piece};
use crate::support::tokens::claims_of;

#[tokio::test]
async fn a_refresh_ends_nothing_and_alone_carries_nothing_on() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &first.access).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(gateway.refresh(&first.access, &first.refresh).await.status, 200);
    gateway.counts("streams_opened_total", 1).await;
    echoes(&mut socket).await;
    gateway.advance(Duration::from_mins(6));
    assert_eq!(within_a_second(closed(&mut socket)).await, expired());
}

#[tokio::test]
async fn a_fresh_token_that_is_used_carries_the_streams_of_its_family_on() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let mut socket = open(&gateway, &first.access).await;
    let mut witness = open(&gateway, &bob.access).await;
    gateway.advance(Duration::from_mins(10));
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(gateway.status_of(&second.access).await, 200);

    gateway.advance(Duration::from_mins(6));
    assert_eq!(closed(&mut witness).await, expired(), "no refresh, no more time");
    echoes(&mut socket).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(within_a_second(closed(&mut socket)).await, expired(), "the second one's time is over, too");
}

/// It comes to one of the workers; the streams are with both, as the system deals connections out.
#[tokio::test]
async fn a_fresh_token_carries_on_what_another_worker_holds() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let (mut sockets, mut witnesses) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        sockets.push(open(&gateway, &first.access).await);
        witnesses.push(open(&gateway, &bob.access).await);
    }
    gateway.advance(Duration::from_mins(10));
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(gateway.status_of(&second.access).await, 200);

    gateway.advance(Duration::from_mins(6));
    for witness in &mut witnesses {
        assert_eq!(closed(witness).await, expired(), "no refresh, no more time");
    }
    for socket in &mut sockets {
        echoes(socket).await;
    }
}

#[tokio::test]
async fn what_revokes_either_token_ends_what_both_carry() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    for which in ["first", "second", "both"] {
        let first = gateway.issue("alice", "").await;
        let mut socket = open(&gateway, &first.access).await;
        let mut witness = open(&gateway, &gateway.issue("bob", "").await.access).await;
        gateway.advance(Duration::from_mins(10));
        let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
        assert_eq!(gateway.status_of(&second.access).await, 200);
        gateway.advance(Duration::from_mins(6));
        assert_eq!(closed(&mut witness).await, expired(), "{which}");
        echoes(&mut socket).await;
        match which {
            "both" => assert_eq!(gateway.revoke(&second.access, &second.token_id).await.status, 200),
            _ => {
                let jti = claims_of(if which == "first" { &first.access } else { &second.access })["jti"].clone();
                let answer = gateway.admin_client().post("/admin/v1/revocations", &json!({ "jti": jti })).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        assert_eq!(within_a_second(closed(&mut socket)).await, revoked(), "{which}");
    }
}

/// The fresh token was seen before the answer was old enough to be entered as a stream.
#[tokio::test]
async fn a_fresh_token_that_comes_right_behind_carries_on_as_well() {
    let backend = Scripted::start(|mut wire, _| async move {
        let asked = wire.hear_until("\r\n\r\n").await;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        if asked.starts_with("GET /events ") {
            wire.say(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
            return drop(wire.hear_to_the_end().await);
        }
        wire.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    });
    let gateway = gateway_of_one_worker(&backend.address.to_string(), "");
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    gateway.advance(Duration::from_mins(10));
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    let mut session = Session::http2(gateway.address()).await;
    let mut ask = async |token: &str| {
        let request = Request::get("/events").header("authorization", format!("Bearer {token}"));
        session.send(request.body(session::empty()).expect("a request")).await.into_body()
    };
    let (mut events, mut witness) = (ask(&first.access).await, ask(&bob.access).await);
    assert_eq!(gateway.status_of(&second.access).await, 204);
    for events in [&mut events, &mut witness] {
        assert_eq!(next_piece(events).await.expect("an event"), "data: 1\n\n");
    }
    gateway.counts("streams_opened_total", 2).await;
    gateway.advance(Duration::from_mins(6));
    assert!(next_piece(&mut witness).await.is_none(), "no fresh token, no more time");
    assert!(next_piece(&mut events).now_or_never().is_none(), "it goes on");
    gateway.counts("streams_closed_total", 1).await;
    gateway.advance(Duration::from_mins(10));
    assert!(within_a_second(next_piece(&mut events)).await.is_none());
}

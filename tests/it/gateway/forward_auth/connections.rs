//! Envoy asks about the requests of all its clients over one connection. What one client does must not end it.

use std::collections::BTreeMap;

use super::check::{Check, PATH, Reply};
use super::{ROUTES, with_config};
use crate::support::frames::{
    self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, block, frame, header_block,
};
use crate::support::{Gateway, Wire};

const FORWARD_AUTH: &str = "[forward_auth]\ndialect = \"ext_authz_grpc\"\nfrom = [\"127.0.0.1\"]\n";

async fn connect(gateway: &Gateway) -> Wire {
    frames::connect(gateway.address(), &[frames::connection_preface_with_max_windows()]).await
}

/// The first part of a call.
fn head(stream: u32) -> Vec<u8> {
    let fields = [header_block("POST", PATH), block(&[("content-type", "application/grpc"), ("te", "trailers")])];
    frame(HEADERS, END_HEADERS, stream, &fields.concat())
}

/// The second part.
fn message(stream: u32, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    // No frame may be larger than 16 KiB.
    let (first, last) = body.split_at((body.len() - 1) / 16_000 * 16_000);
    let first = first.chunks(16_000).flat_map(|part| frame(DATA, 0, stream, part));
    first.chain(frame(DATA, END_STREAM, stream, last)).collect()
}

fn call(stream: u32, check: &Check) -> Vec<u8> {
    [head(stream), message(stream, &check.message())].concat()
}

/// Reads this many replies, in whatever order they come. Fails if the connection ends.
async fn replies(wire: &mut Wire, count: usize) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    while found.len() < count {
        let reply = frames::next(wire, &[DATA, RST_STREAM, GOAWAY]).await;
        assert_eq!(reply.kind, DATA, "{reply:?}");
        if !reply.payload.is_empty() {
            found.insert(reply.stream, Reply::of(&reply.payload[5..]).status());
        }
    }
    found
}

#[tokio::test]
async fn calls_at_the_same_time_each_get_their_own_reply() {
    let (gateway, upstream) = with_config(&format!("{ROUTES}{FORWARD_AUTH}"));
    let pair = gateway.issue("alice", "orders").await;
    let of = |stream: u32| match stream % 3 {
        0 => (Check::get("/orders").bearer(&pair.access), 200),
        1 => (Check::get("/orders"), 401),
        _ => (Check::get("/orders/../x"), 400),
    };
    let streams: Vec<u32> = (1..300).step_by(2).collect();
    let mut envoy = connect(&gateway).await;
    // All of them begin before the first one has its message.
    envoy.send(streams.iter().flat_map(|stream| head(*stream)).collect::<Vec<_>>()).await;
    for stream in streams.iter().rev() {
        envoy.send(message(*stream, &of(*stream).0.message())).await;
    }
    let expected: BTreeMap<_, _> = streams.iter().map(|stream| (*stream, of(*stream).1)).collect();
    assert_eq!(replies(&mut envoy, streams.len()).await, expected);
    assert!(upstream.seen().is_empty());
}

/// Over HTTP, such a request ends the connection of its client, and costs its address a penalty.
#[tokio::test]
async fn a_malformed_request_of_one_client_leaves_the_connection_open() {
    let limits = "[limits]\nmalformed_requests = 1\nrejected_bodies = 1\nfailed_handshakes = 1\n";
    let (gateway, _upstream) = with_config(&format!("{limits}{ROUTES}{FORWARD_AUTH}"));
    let mut envoy = connect(&gateway).await;
    let mut stream = 1;
    for _ in 0..5 {
        for (check, status) in [
            (Check::get("/public").header("transfer-encoding", "chunked, x"), 200),
            (Check::get("/public").header("transfer-encoding", "x").header("content-length", "1, 2"), 200),
            (Check::get("/public").header("host", "b.example"), 400),
            (Check { source: "nowhere", ..Check::get("/public") }, 400),
            (Check { method: "G T", ..Check::get("/public") }, 400),
            (Check::get("/public/%00"), 400),
            (Check::get(&format!("/public?{}", "a".repeat(9_000))), 414),
            (Check::get("/public").header("x", &"a".repeat(17_000)), 431),
        ] {
            envoy.send(call(stream, &check)).await;
            let found = replies(&mut envoy, 1).await;
            assert_eq!(found, BTreeMap::from([(stream, status)]), "{} {:?}", check.target, check.headers);
            stream += 2;
        }
    }
    // Also a new connection of the same address.
    let mut other = connect(&gateway).await;
    other.send(call(1, &Check::get("/public"))).await;
    assert_eq!(replies(&mut other, 1).await, BTreeMap::from([(1, 200)]));
}

/// A client can open and cancel many requests with one packet (CVE-2023-44487). Envoy passes them on.
#[tokio::test]
async fn a_burst_of_cancelled_calls_leaves_the_connection_open() {
    let (gateway, _upstream) = with_config(&format!("{ROUTES}{FORWARD_AUTH}"));
    let mut envoy = connect(&gateway).await;
    let check = Check::get("/public");
    let cancelled = |stream: u32| [call(stream, &check), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
    for burst in 0..5 {
        let first = 1 + burst * 1_000;
        envoy.send((first..first + 400).step_by(2).flat_map(cancelled).collect::<Vec<_>>()).await;
        let last = first + 998;
        envoy.send(call(last, &check)).await;
        let mut reply = frames::next(&mut envoy, &[GOAWAY, DATA]).await;
        while reply.kind == DATA && reply.stream != last {
            reply = frames::next(&mut envoy, &[GOAWAY, DATA]).await;
        }
        assert_eq!((reply.kind, reply.stream), (DATA, last), "burst {burst}: {reply:?}");
    }
}

/// Envoy denies a request if its call fails. The gateway answers what has begun, and Envoy opens a new connection.
#[tokio::test]
async fn a_call_that_has_begun_is_answered_during_the_drain() {
    let (mut gateway, _upstream) = with_config(&format!("{ROUTES}{FORWARD_AUTH}"));
    let mut envoy = connect(&gateway).await;
    envoy.send([head(1), call(3, &Check::get("/public"))].concat()).await;
    assert_eq!(replies(&mut envoy, 1).await, BTreeMap::from([(3, 200)]));
    let draining = gateway.begin_drain();
    let goaway = frames::next(&mut envoy, &[GOAWAY, RST_STREAM]).await;
    assert_eq!((goaway.kind, &goaway.payload[4..8]), (GOAWAY, &[0, 0, 0, 0][..]), "without an error");
    envoy.send(message(1, &Check::get("/public").message())).await;
    let reply = frames::next(&mut envoy, &[DATA, RST_STREAM]).await;
    assert_eq!((reply.kind, Reply::of(&reply.payload[5..]).status()), (DATA, 200));
    draining.join().expect("it drains");
}

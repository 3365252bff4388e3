//! `limits.connections` is nearly used up: who still gets a connection, and which are closed.

use std::net::IpAddr;
use std::time::Duration;

use super::GET;
use crate::support::frames::{self, GOAWAY, HEADERS};
use crate::support::{Gateway, Upstream, Wire};

/// Connects from this address and sends a request that stays in flight. `None` if the gateway closes the connection.
async fn hold(gateway: &Gateway, upstream: &Upstream, client: IpAddr) -> Option<Wire> {
    let before = upstream.in_flight();
    let mut wire = Wire::connect_from(client, gateway.address()).await;
    let _ = wire.try_send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut peeked = [0];
    loop {
        if upstream.in_flight() > before {
            return Some(wire);
        }
        // The gateway never responds, so the only thing to read is the end.
        if tokio::time::timeout(Duration::from_millis(5), wire.stream.peek(&mut peeked)).await.is_ok() {
            return None;
        }
    }
}

async fn is_served(gateway: &Gateway, client: IpAddr) -> Option<Wire> {
    let mut wire = Wire::connect_from(client, gateway.address()).await;
    let _ = wire.try_send(GET).await;
    wire.try_read_until("hello").await.is_some().then_some(wire)
}

#[tokio::test]
async fn ten_addresses_cannot_take_every_connection() {
    let upstream = Upstream::start();
    let limits = "max_concurrent_requests = 1000\nreserve_percent = 0\n\
                  [limits]\nconnections = 80\nreserve_percent = 50\nconnections_per_address = 0";
    let gateway = Gateway::public_single_worker(upstream.address, limits);
    let mut held = Vec::new();
    for attacker in 1..=10 {
        for _ in 0..10 {
            held.extend(hold(&gateway, &upstream, [127, 0, 1, attacker].into()).await);
        }
    }
    assert!((40..70).contains(&held.len()), "{} of 80 connections, half of them reserved", held.len());
    let mut honest = Vec::new();
    for client in 1..=5 {
        honest.push(is_served(&gateway, [127, 0, 2, client].into()).await.expect("a new client is served"));
    }
    // A trusted proxy brings many clients, but here is none: what was rejected was rejected by its address.
    assert_eq!(gateway.metric("bearward_connections_rejected_total").await, 0.0);
    gateway.wait_for_metric("address_connections_rejected_total", 100 - held.len() as u64).await;
}

#[tokio::test]
async fn the_longest_idle_connections_make_room() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nconnections = 4\nreserve_percent = 0");
    let client = IpAddr::from([127, 0, 0, 9]);
    let mut first = is_served(&gateway, client).await.expect("a free slot");
    let busy = hold(&gateway, &upstream, client).await.expect("a free slot");
    let mut second = frames::connect(gateway.address(), &[frames::connection_preface(), frames::get(1, "/")]).await;
    frames::next(&mut second, &[HEADERS]).await;
    // A connection is closed only if it was idle for a second, and HTTP/2 is checked once a second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let fourth = is_served(&gateway, client).await.expect("the last slot");
    first.assert_closed().await;
    let mut fifth = None;
    while fifth.is_none() {
        fifth = is_served(&gateway, client).await;
    }
    let closed = frames::next(&mut second, &[GOAWAY]).await;
    assert_eq!(closed.payload[4..8], [0, 0, 0, 0], "NO_ERROR");
    assert!(gateway.metric("bearward_idle_connections_closed_total").await >= 2.0);
    assert_eq!(upstream.in_flight(), 1, "a connection in use stays open");
    drop((busy, fourth));
}

//! Maximum connections, and maximum streams on each.

use super::GET;
use crate::support::frames::{self, GOAWAY, HEADERS, RST_STREAM};
use crate::support::wait::eventually;
use crate::support::{Gateway, HonestClient, Upstream, Wire};

#[tokio::test]
async fn connections_over_the_limit_are_closed_at_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nconnections = 2");
    let mut honest = HonestClient::connect(&gateway).await;
    let mut held = Wire::connect(gateway.address()).await;
    held.send(GET).await;
    assert_eq!(held.read_response().await.status, 200);
    let mut rejected = 0;
    honest
        .assert_served_during(async || {
            for address in [gateway.address(), gateway.tls_address()] {
                Wire::connect(address).await.read_to_end().await;
                rejected += 1;
            }
        })
        .await;
    gateway.wait_for_metric("connections_rejected_total", rejected).await;
    drop(held);
    let mut attempts = 0;
    loop {
        let mut client = Wire::connect(gateway.address()).await;
        // The gateway closes this connection until it notices that the other one is closed.
        if client.try_send(GET).await.is_ok()
            && client.try_read_until("\r\n\r\n").await.is_some_and(|head| head.starts_with("HTTP/1.1 200"))
        {
            break;
        }
        attempts += 1;
        assert!(attempts < 1000, "the slot is never free again");
    }
}

/// All of `127.0.0.0/8` is this machine, so the attacker and the honest client can have different addresses.
#[tokio::test]
async fn the_connections_of_one_address_are_limited() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nconnections_per_address = 3");
    let attacker = [127, 0, 0, 66].into();
    let mut honest = HonestClient::connect(&gateway).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut wire = Wire::connect_from(attacker, gateway.address()).await;
        wire.send(GET).await;
        assert_eq!(wire.read_response().await.status, 200);
        held.push(wire);
    }
    let mut rejected = 0;
    honest
        .assert_served_during(async || {
            for address in [gateway.address(), gateway.tls_address()].repeat(20) {
                Wire::connect_from(attacker, address).await.assert_closed().await;
                rejected += 1;
            }
        })
        .await;
    gateway.wait_for_metric("address_connections_rejected_total", rejected).await;
    HonestClient::connect(&gateway).await.assert_served().await;
    // The slot of a closed connection is free again.
    drop(held.pop());
    let mut tries = 0;
    loop {
        let mut wire = Wire::connect_from(attacker, gateway.address()).await;
        if wire.try_send(GET).await.is_ok() && wire.try_read_until("\r\n\r\n").await.is_some() {
            break;
        }
        tries += 1;
        assert!(tries < 1000, "the slot is never free again");
    }
}

/// A proxy brings the connections of all its clients.
#[tokio::test]
async fn a_trusted_proxy_may_open_any_number_of_connections() {
    let upstream = Upstream::start();
    let more = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n[limits]\nconnections_per_address = 2";
    let gateway = Gateway::public(upstream.address, more);
    let mut connections = Vec::new();
    for _ in 0..6 {
        let mut connection = Wire::connect(gateway.address()).await;
        connection.send(GET).await;
        assert_eq!(connection.read_response().await.status, 200);
        connections.push(connection);
    }
}

#[tokio::test]
async fn streams_over_the_limit_get_refused_stream() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nhttp2_concurrent_streams = 2");
    let mut honest = HonestClient::connect(&gateway).await;
    honest
        .assert_served_during(async || {
            let more: Vec<_> = (5..45).step_by(2).flat_map(|stream| frames::get(stream, "/")).collect();
            let requests = [frames::connection_preface(), frames::get(1, "/hang"), frames::get(3, "/drip"), more];
            let mut attacker = frames::connect(gateway.address(), &requests).await;
            let (mut served, mut rejected) = (Vec::new(), Vec::new());
            while served.len() + rejected.len() < 21 {
                let frame = frames::next(&mut attacker, &[HEADERS, RST_STREAM, GOAWAY]).await;
                if frame.kind == HEADERS {
                    served.push(frame.stream);
                } else {
                    assert_eq!((frame.kind, frame.payload), (RST_STREAM, vec![0, 0, 0, 7]), "REFUSED_STREAM");
                    rejected.push(frame.stream);
                }
            }
            assert_eq!((served, rejected), (vec![3], (5..45).step_by(2).collect()));
        })
        .await;
}

/// Requests that are cancelled as fast as they are sent (CVE-2023-44487) close their connection, and no other.
#[tokio::test]
async fn rapid_resets_close_only_their_own_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\npenalty_duration = \"0s\"");
    let mut honest = HonestClient::connect(&gateway).await;
    let reset = |stream| [frames::get(stream, "/hang"), frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
    let flood = (0..5000).flat_map(|number| reset(2 * number + 1)).collect::<Vec<_>>();
    honest
        .assert_served_during(async || {
            let mut attacker = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
            let _ = attacker.try_send(&flood).await;
            let ended = frames::next(&mut attacker, &[GOAWAY]).await;
            assert_eq!(ended.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
        })
        .await;
    eventually("the requests to the backend are cancelled", || upstream.in_flight() == 0).await;
}

#[tokio::test]
async fn a_head_over_the_limit_is_rejected_over_http2() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequest_header_size = \"8KiB\"");
    let [_, client, ..] = gateway.clients();
    let response = client.header("x-large", &"v".repeat(9000)).get("/").await;
    assert_eq!(response.status, 431);
    assert!(upstream.seen().is_empty());
}

//! Idle, busy and unresponsive connections during the drain.

use std::time::{Duration, Instant};

use http::Version;

use super::{request, wait_for_drain};
use crate::support::connection::{self, HttpConnection};
use crate::support::frames;
use crate::support::{Gateway, Upstream, Wire};

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    // At first they have just been used, then they have given their buffers back.
    for pause in [Duration::ZERO, Duration::from_millis(600)] {
        idle_connections_are_closed_after(pause).await;
    }
}

async fn idle_connections_are_closed_after(pause: Duration) {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let mut sessions = Vec::new();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        connection::text(connection.send(request("/")).await.into_body()).await;
        sessions.push(connection);
    }
    let silent = [Wire::connect(gateway.address()).await, Wire::connect(gateway.tls_address()).await];
    tokio::time::sleep(pause).await;
    let began = Instant::now();
    let draining = gateway.begin_drain();
    for connection in sessions {
        connection.assert_closed().await;
    }
    drop(silent);
    wait_for_drain(draining).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Only a response can tell an HTTP/1.1 client that the gateway is draining.
#[tokio::test]
async fn a_busy_connection_is_closed_with_a_response_that_says_so() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "[[route]]\npath = \"/private\"");
    let mut clients = Vec::new();
    // One response of the backend, and one of the gateway itself.
    for (path, status) in [("/", 200), ("/private", 401)] {
        for _ in 0..4 {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut client = Wire::connect(gateway.address()).await;
            client.send(&request).await;
            assert_eq!(client.read_response().await.header("connection"), None);
            clients.push(tokio::spawn(async move {
                loop {
                    client.send(&request).await;
                    let response = client.read_response().await;
                    assert_eq!(response.status, status, "{response:?}");
                    if response.header("connection") == Some("close") {
                        return client.assert_closed().await;
                    }
                }
            }));
        }
    }
    let draining = gateway.begin_drain();
    for client in clients {
        client.await.expect("no request is lost");
    }
    wait_for_drain(draining).await;
}

/// An HTTP/2 client on a suspended machine does not even acknowledge GOAWAY.
#[tokio::test]
async fn an_unresponsive_client_does_not_delay_the_drain() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let suspended = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
    let began = Instant::now();
    wait_for_drain(gateway.begin_drain()).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(suspended);
}

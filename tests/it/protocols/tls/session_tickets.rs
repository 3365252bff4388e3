//! The time of the session tickets of TLS 1.3.

use std::io::ErrorKind;

use super::manual_client::ManualClient;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream};

/// A separate write for the session tickets would cost a tenth of a handshake.
#[tokio::test]
async fn session_tickets_are_sent_with_the_first_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = ManualClient::handshake(&gateway).await;
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1").await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    let nothing = client.stream.try_read(&mut [0]).expect_err("the backend waits for the rest of the body");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    client.send(b"2").await;
    assert!(client.read_response().await.starts_with(b"HTTP/1.1 200 "));
    assert!(client.connection.tls13_tickets_received() > 0);
}

/// A client without a request gets its tickets too.
#[tokio::test]
async fn session_tickets_do_not_wait_for_a_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = ManualClient::handshake(&gateway).await;
    client.send(b"").await;
    while client.connection.tls13_tickets_received() == 0 {
        client.read().await;
    }
}

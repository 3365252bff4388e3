//! The end of a TLS connection that the client closes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::manual_client::ManualClient;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, Upstream};

/// What a client that closed its direction of the connection still gets, as bytes of the socket.
async fn received_after_close(mut client: ManualClient) -> Vec<u8> {
    client.stream.shutdown().await.expect("closed");
    let mut rest = Vec::new();
    tokio::time::timeout(TIMEOUT, client.stream.read_to_end(&mut rest)).await.expect("in time").expect("no reset");
    rest
}

/// A client with an idle connection: it has had one response.
async fn idle_client(gateway: &Gateway) -> ManualClient {
    let mut client = ManualClient::handshake(gateway).await;
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let response = client.read_response().await;
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    client
}

/// Most clients close the connection without the alert that ends TLS. The kernel of such a client replies with a reset
/// to whatever it still gets.
#[tokio::test]
async fn a_client_that_is_gone_gets_nothing_more() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let client = idle_client(&gateway).await;
    assert_eq!(received_after_close(client).await, b"");
    gateway.wait_for_metric("connections_closed_total", 1).await;
}

/// RFC 8446 section 6.1, RFC 5246 section 7.2.1
#[tokio::test]
async fn a_client_that_ends_tls_gets_the_end_of_tls() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = idle_client(&gateway).await;
    client.connection.send_close_notify();
    client.send(b"").await;
    let record = received_after_close(client).await;
    assert_eq!((record[0], record.len()), (23, 24), "one encrypted alert: {record:?}");
}

//! A WebSocket on which one side closes only its own direction, as `shutdown(SHUT_WR)` does.

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::*;

/// How long the other side may stay open, and some time for a busy machine.
const LIMIT: Duration = Duration::from_secs(8);

/// Asserts that nothing of these tunnels is left.
async fn assert_no_tunnel(gateway: &Gateway, backend: &ScriptedBackend) {
    eventually("the backend's connections are closed", || backend.ended() == backend.connections()).await;
    gateway.wait_for_metric("requests_in_flight", 0).await;
    let opened = gateway.metric("bearward_streams_opened_total").await as u64;
    gateway.wait_for_metric("streams_closed_total", opened).await;
    let (opened, clients) = ("bearward_connections_opened_total", "connections_closed_total");
    gateway.wait_for_metric(clients, gateway.metric(opened).await as u64).await;
}

#[tokio::test]
async fn what_follows_a_half_close_of_the_client_arrives() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(SWITCHED).await;
        assert_eq!(wire.read_to_end().await, "up");
        wire.send("late").await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = open_wire(&gateway, "none").await;
    client.send("up").await;
    client.stream.shutdown().await.expect("it is open");
    assert_eq!(client.read_to_end().await, "late");
    drop(client);
    assert_no_tunnel(&gateway, &backend).await;
}

/// END_STREAM of the client's half of the stream (RFC 8441 section 5).
#[tokio::test]
async fn what_follows_a_half_close_over_http2_arrives() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        let head = wire.read_until("\r\n\r\n").await;
        let field = head.lines().filter_map(|line| line.split_once(": "));
        let mut key = field.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")).map(|(_, key)| key);
        let accept = derive_accept_key(key.next_back().expect("a key").as_bytes());
        wire.send(format!("{}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n", SWITCHED.trim_end())).await;
        assert_eq!(wire.read_to_end().await, "up");
        wire.send("late").await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut connection = super::http2::connection(&gateway).await;
    let response = connection.send(super::http2::connect("/ws", "websocket", &[])).await;
    assert_eq!(response.status(), 200);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.expect("a tunnel"));
    tunnel.write_all(b"up").await.expect("it is open");
    tunnel.shutdown().await.expect("it is open");
    let mut received = String::new();
    let reading = tokio::time::timeout(TIMEOUT, tunnel.read_to_string(&mut received)).await;
    reading.expect("the tunnel ends").expect("text");
    assert_eq!(received, "late");
    drop((tunnel, connection));
    assert_no_tunnel(&gateway, &backend).await;
}

#[tokio::test]
async fn what_follows_a_half_close_of_the_backend_arrives() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(format!("{SWITCHED}down")).await;
        wire.stream.shutdown().await.expect("it is open");
        assert_eq!(wire.read_to_end().await, "late");
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = open_wire(&gateway, "none").await;
    assert_eq!(client.read_to_end().await, "down");
    client.send("late").await;
    drop(client);
    assert_no_tunnel(&gateway, &backend).await;
}

/// The backend closes both directions at once. A client that is still sending gets the last frame and the end, and no
/// reset.
#[tokio::test]
async fn a_client_that_still_sends_gets_the_last_frame() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(format!("{SWITCHED}bye")).await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = open_wire(&gateway, "none").await;
    eventually("the backend has closed", || backend.ended() == 1).await;
    for _ in 0..20 {
        client.try_send("x").await.expect("no reset");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(client.read_bytes(3).await, b"bye");
    let mut rest = [0];
    assert_eq!(client.stream.read(&mut rest).await.expect("no reset"), 0);
    drop(client);
    assert_no_tunnel(&gateway, &backend).await;
}

/// Each side in turn closes its direction, and the other goes on to send for ever.
#[tokio::test]
async fn a_side_that_never_closes_is_disconnected() {
    let backend = ScriptedBackend::start(|mut wire, number| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(SWITCHED).await;
        if number == 0 {
            assert_eq!(wire.read_to_end().await, "");
            send_for_ever(wire).await;
        } else {
            wire.stream.shutdown().await.expect("it is open");
            read_for_ever(wire).await;
        }
    });
    let gateway = Gateway::public(backend.address, "");
    let mut half_closed = open_wire(&gateway, "none").await;
    let never_closing = open_wire(&gateway, "none").await;
    let client_closes = async {
        half_closed.stream.shutdown().await.expect("it is open");
        let received = half_closed.read_to_end().await;
        assert!(received.len() > 1 && received.bytes().all(|byte| byte == b'x'), "{received}");
    };
    let started = Instant::now();
    tokio::join!(client_closes, send_for_ever(never_closing));
    assert!(started.elapsed() < LIMIT, "took {:?}", started.elapsed());
    drop(half_closed);
    assert_no_tunnel(&gateway, &backend).await;
}

/// A side that half-closes and then neither sends nor reads holds the tunnel no longer.
#[tokio::test]
async fn a_silent_half_closed_tunnel_ends() {
    let backend = ScriptedBackend::start(|mut wire, number| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(SWITCHED).await;
        if number > 0 {
            wire.stream.shutdown().await.expect("it is open");
        }
        // Until the gateway has ended the connection: a byte into a closed connection is answered with a reset.
        wire.read_to_end().await;
        send_for_ever(wire).await;
    });
    let gateway = Gateway::public(backend.address, "");
    let (mut closing, mut open) = (open_wire(&gateway, "none").await, open_wire(&gateway, "none").await);
    closing.stream.shutdown().await.expect("it is open");
    assert_eq!(open.read_to_end().await, "", "the backend has closed its direction");
    gateway.wait_for_metric("requests_in_flight", 0).await;
    drop((closing, open));
    assert_no_tunnel(&gateway, &backend).await;
}

/// Returns when the peer has closed the connection.
async fn send_for_ever(mut wire: Wire) {
    while wire.try_send("x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn read_for_ever(mut wire: Wire) {
    while wire.try_read_until("x").await.is_some() {}
}

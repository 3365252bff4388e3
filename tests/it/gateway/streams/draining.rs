//! A graceful shutdown ends all streams, so that their clients connect to another gateway.

use super::*;

#[tokio::test]
async fn a_drain_closes_websockets_at_once() {
    let upstream = Upstream::start();
    let mut gateway =
        Gateway::with_config(&upstream, "[[route]]\npath = \"/\"\n[[route]]\npath = \"/open/\"\npublic = true\n");
    let pair = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &pair.access).await;
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let mut public = client_async("ws://gateway.test/open/ws", stream).await.expect("a WebSocket").0;
    let draining = gateway.begin_drain();
    for socket in [&mut socket, &mut public] {
        assert_eq!(close_frame(socket).await, (1001, "the gateway is shutting down".to_owned()));
    }
    assert_drained(draining).await;
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"ended\":\"draining\"")).count(), 2, "{log}");
}

/// An EventSource reconnects by itself, so it is closed at once. Other clients can read events until the deadline of
/// the drain.
#[tokio::test]
async fn a_drain_ends_event_sources_first_and_others_at_its_deadline() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        while wire.try_read_until("\r\n\r\n").await.is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            wire.send(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
        }
    });
    let more = "[timeouts]\ndrain = \"2s\"\n[[route]]\npath = \"/\"\n[[route]]\npath = \"/open/\"\npublic = true\n";
    let mut gateway = gateway_of_one_worker(&backend.address.to_string(), more);
    let pair = gateway.issue("alice", "").await;
    let mut streams = Vec::new();
    for (method, path) in [("GET", "/events"), ("GET", "/open/events"), ("POST", "/events")] {
        let mut wire = Wire::connect(gateway.address()).await;
        let bearer =
            if path == "/events" { format!("Authorization: Bearer {}\r\n", pair.access) } else { String::new() };
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{bearer}\r\n")).await;
        wire.read_until("data: 1\n\n\r\n").await;
        streams.push(wire);
    }
    gateway.wait_for_metric("streams_opened_total", 3).await;
    let started = Instant::now();
    let draining = gateway.begin_drain();
    let [mut source, mut public, mut other] = <[Wire; 3]>::try_from(streams).ok().expect("three");
    for wire in [&mut source, &mut public] {
        assert_eq!(wire.read_until("0\r\n\r\n").await, "0\r\n\r\n", "a clean end");
    }
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    for mut wire in [source, public] {
        wire.assert_closed().await;
    }
    assert_eq!(other.read_to_end().await, "0\r\n\r\n", "a clean end");
    assert!(started.elapsed() >= 2 * SECOND, "{:?}", started.elapsed());
    draining.join().expect("it ends");
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"ended\":\"draining\"")).count(), 3, "{log}");
}

//! A process that is about to end says so to its WebSockets, whoever they are: their clients can connect elsewhere.

use super::*;

#[tokio::test]
async fn a_websocket_is_told_at_once_that_the_gateway_is_going_away() {
    let upstream = Upstream::start();
    let mut gateway =
        Gateway::with(&upstream, "[[route]]\npath = \"/\"\n[[route]]\npath = \"/open/\"\npublic = true\n");
    let pair = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &pair.access).await;
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let mut public = client_async("ws://gateway.test/open/ws", stream).await.expect("a WebSocket").0;
    let began = Instant::now();
    let draining = gateway.begin_drain();
    for socket in [&mut socket, &mut public] {
        assert_eq!(closed(socket).await, (1001, "the gateway is going away".to_owned()));
    }
    while !draining.is_finished() {
        assert!(began.elapsed() < PATIENCE, "a drain that lasts its whole deadline");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"ended\":\"draining\"")).count(), 2, "{log}");
}

/// An EventSource connects again by itself: to another process, or to the next one at the same socket. Who asked for events in
/// another way gets what there is in the time of the drain.
#[tokio::test]
async fn an_event_source_is_told_at_once_and_other_events_have_the_time_of_the_drain() {
    let backend = Scripted::start(|mut wire, _| async move {
        while wire.try_hear_until("\r\n\r\n").await.is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            wire.say(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
        }
    });
    let more = "[timeouts]\ndrain = \"2s\"\n[[route]]\npath = \"/\"\n[[route]]\npath = \"/open/\"\npublic = true\n";
    let mut gateway = gateway_of_one_worker(&backend.address.to_string(), more);
    let pair = gateway.issue("alice", "").await;
    let mut begun = Vec::new();
    for (method, path) in [("GET", "/events"), ("GET", "/open/events"), ("POST", "/events")] {
        let mut wire = Wire::connect(gateway.address()).await;
        let bearer =
            if path == "/events" { format!("Authorization: Bearer {}\r\n", pair.access) } else { String::new() };
        wire.say(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{bearer}\r\n")).await;
        wire.hear_until("data: 1\n\n\r\n").await;
        begun.push(wire);
    }
    gateway.counts("streams_opened_total", 3).await;
    let began = Instant::now();
    let draining = gateway.begin_drain();
    let [mut source, mut public, mut other] = <[Wire; 3]>::try_from(begun).ok().expect("three");
    for wire in [&mut source, &mut public] {
        assert_eq!(wire.hear_until("0\r\n\r\n").await, "0\r\n\r\n", "a clean end");
    }
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    for mut wire in [source, public] {
        wire.is_closed().await;
    }
    assert_eq!(other.hear_to_the_end().await, "0\r\n\r\n", "a clean end");
    assert!(began.elapsed() >= 2 * SECOND, "{:?}", began.elapsed());
    draining.join().expect("it ends");
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"ended\":\"draining\"")).count(), 3, "{log}");
}

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

//! Streams end with the token that they stand on, within a second, in their protocol's own way.

mod bodies;
mod draining;
mod grpc;
mod http2;
mod many;
mod renewed;
mod websocket_frames;
mod websockets;

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Scripted, Upstream, Wire};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any access token lives, clock skew included.
const LIFE: Duration = Duration::from_mins(16);
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

type Socket = WebSocketStream<TcpStream>;

/// A gateway whose streams are all looked after by one worker: what is true of one that was ended is true of the others.
fn gateway_of_one_worker(upstream: &str, more: &str) -> Gateway {
    Gateway::from_text(Gateway::text(upstream, more).replace("workers = 2", "workers = 1"))
}

async fn open(gateway: &Gateway, token: &str) -> Socket {
    let mut request = "ws://gateway.test/ws".into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header value"));
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    client_async(request, stream).await.expect("a WebSocket").0
}

/// A WebSocket over a backend that is no WebSocket: byte for byte.
async fn open_wire(gateway: &Gateway, token: &str) -> Wire {
    let mut client = Wire::connect(gateway.address()).await;
    let head = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.say(format!("{head}Authorization: Bearer {token}\r\n\r\n")).await;
    assert_eq!(client.answer().await.status, 101);
    client
}

/// Asserts that messages still pass.
async fn echoes<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) {
    socket.send(Message::text("still there?")).await.expect("sent");
    let answer = tokio::time::timeout(PATIENCE, socket.next()).await.expect("an echo in time");
    assert_eq!(answer.expect("an echo").expect("a message"), Message::text("still there?"));
}

/// The code and the reason of the close frame that comes next.
async fn closed<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> (u16, String) {
    let message = tokio::time::timeout(PATIENCE, socket.next()).await.expect("a close frame in time");
    match message.expect("a close frame before the end").expect("a close frame") {
        Message::Close(Some(frame)) => {
            // The other side is gone, too.
            while let Some(Ok(_)) = tokio::time::timeout(PATIENCE, socket.next()).await.expect("closed in time") {}
            (frame.code.into(), frame.reason.to_string())
        }
        other => panic!("no close frame: {other:?}"),
    }
}

fn revoked() -> (u16, String) {
    (1008, "the token was revoked".into())
}

fn expired() -> (u16, String) {
    (1008, "the token expired".into())
}

/// What is promised: it takes no longer than a second.
async fn within_a_second<T>(ending: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let ended = ending.await;
    assert!(began.elapsed() < SECOND, "took {:?}", began.elapsed());
    ended
}

/// The lines of streams that were ended say why.
async fn logged(gateway: &Gateway, reason: &str) {
    for _ in 0..500 {
        let lines = gateway.log_lines(1).await;
        if let Some(line) = lines.iter().find(|line| line["ended"] == reason) {
            return assert_eq!(line["complete"], false, "{line}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no line with ended = {reason:?}: {}", gateway.file("access.log"));
}

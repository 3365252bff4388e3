//! A stream ends within a second of the expiry or revocation of its token, in the way of its protocol.

mod bodies;
mod broken_off;
mod draining;
mod grpc;
mod half_closed;
mod http2;
mod many;
mod reloaded;
mod renewed;
mod replicas;
mod websocket_frames;
mod websockets;

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::wait::eventually;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than the lifetime of an access token and the clock skew.
const LIFETIME: Duration = Duration::from_mins(16);
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

pub type Socket = WebSocketStream<TcpStream>;

/// A gateway with one worker. It ends all streams in one pass, so when one has ended, the others that should end have
/// too.
fn gateway_of_one_worker(upstream: &str, more: &str) -> Gateway {
    Gateway::from_text(Gateway::config_text(upstream, more).replace("workers = 2", "workers = 1"))
}

pub async fn open(gateway: &Gateway, token: &str) -> Socket {
    open_with(gateway, "gateway.test", &[("authorization", &format!("Bearer {token}"))]).await
}

pub async fn open_with(gateway: &Gateway, host: &str, fields: &[(&'static str, &str)]) -> Socket {
    open_at(gateway, &format!("ws://{host}/ws"), fields).await
}

pub async fn open_at(gateway: &Gateway, url: &str, fields: &[(&'static str, &str)]) -> Socket {
    let mut request = url.into_client_request().expect("a request");
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().expect("a header value"));
    }
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    client_async(request, stream).await.expect("a WebSocket").0
}

/// Opens a WebSocket as a raw connection, to compare bytes.
async fn open_wire(gateway: &Gateway, token: &str) -> Wire {
    let mut client = Wire::connect(gateway.address()).await;
    let head = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.send(format!("{head}Authorization: Bearer {token}\r\n\r\n")).await;
    assert_eq!(client.read_response().await.status, 101);
    client
}

/// Asserts that the stream is open: the backend echoes a message.
pub async fn assert_open<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) {
    socket.send(Message::text("still there?")).await.expect("sent");
    let echo = tokio::time::timeout(TIMEOUT, socket.next()).await.expect("an echo in time");
    assert_eq!(echo.expect("an echo").expect("a message"), Message::text("still there?"));
}

/// Waits for a close frame and for the end of the connection. Returns the code and the reason of the frame.
pub async fn close_frame<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> (u16, String) {
    let message = tokio::time::timeout(TIMEOUT, socket.next()).await.expect("a close frame in time");
    match message.expect("a close frame before the end").expect("a close frame") {
        Message::Close(Some(frame)) => {
            // Returns when the gateway has closed the connection.
            while let Some(Ok(_)) = tokio::time::timeout(TIMEOUT, socket.next()).await.expect("closed in time") {}
            (frame.code.into(), frame.reason.to_string())
        }
        other => panic!("no close frame: {other:?}"),
    }
}

pub fn revoked() -> (u16, String) {
    (1008, "the token was revoked".into())
}

fn expired() -> (u16, String) {
    (1008, "the token expired".into())
}

/// Asserts that `ending` takes less than a second, as the documentation promises.
pub async fn within_a_second<T>(ending: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let result = ending.await;
    assert!(started.elapsed() < SECOND, "took {:?}", started.elapsed());
    result
}

/// Asserts that the access log has a line of a stream that was ended for this reason.
async fn assert_ended(gateway: &Gateway, reason: &str) {
    let line = gateway.log_line(|line| line["ended"] == reason).await;
    assert_eq!(line["complete"], false, "{line}");
}

/// Asserts that the gateway has drained before its deadline.
async fn assert_drained(draining: std::thread::JoinHandle<()>) {
    eventually("the drain ends before its deadline", || draining.is_finished()).await;
}

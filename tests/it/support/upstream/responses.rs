//! The responses of the backend. The parent module lists them by path.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;

pub type Body = UnsyncBoxBody<Bytes, hyper::Error>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub async fn respond(path: &str, body: Bytes) -> Result<Response<Body>, String> {
    let body_or_hello = if body.is_empty() { Bytes::from_static(b"hello") } else { body };
    let mut response = Response::new(full(body_or_hello.clone()));
    match path {
        "/close" => return Err("the path says to close".into()),
        "/hang" => std::future::pending().await,
        // The delay is the purpose of this path.
        "/slow" => tokio::time::sleep(Duration::from_secs(1)).await,
        "/drip" => *response.body_mut() = drip(),
        "/private/events" => {
            response.headers_mut().insert("content-type", "text/event-stream".parse().expect("a header value"));
            *response.body_mut() = heartbeats();
        }
        "/trailers" => {
            response.headers_mut().insert("trailer", "x-checksum".parse().expect("a header value"));
            let trailers =
                HeaderMap::from_iter([("x-checksum".parse().expect("a name"), "7".parse().expect("a value"))]);
            let frames = [Frame::data(body_or_hello), Frame::trailers(trailers)].map(Ok::<_, hyper::Error>);
            *response.body_mut() = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        }
        "/headers" => {
            for (name, value) in [
                ("connection", "x-nominated"),
                ("x-nominated", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authenticate", "Basic"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
            ] {
                response.headers_mut().append(name, value.parse().expect("a header value"));
            }
        }
        _ => {
            if let Some(len) = path.strip_prefix("/large/") {
                *response.body_mut() = large(len.parse().expect("a length"));
            }
            if let Some(status) = path.strip_prefix("/status/") {
                *response.status_mut() = status.parse().expect("a status");
                *response.body_mut() = full(Bytes::new());
            }
        }
    }
    Ok(response)
}

fn drip() -> Body {
    every_50_ms(["one ", "two ", "three"].into_iter())
}

/// Events that keep a stream open until the client disconnects.
fn heartbeats() -> Body {
    every_50_ms(std::iter::repeat(": still there\n\n"))
}

fn every_50_ms(pieces: impl Iterator<Item = &'static str> + Send + 'static) -> Body {
    let (chunks, mut received) = mpsc::channel(1);
    tokio::spawn(async move {
        for piece in pieces {
            if chunks.send(Ok::<_, hyper::Error>(Frame::data(Bytes::from_static(piece.as_bytes())))).await.is_err() {
                return;
            }
            // Paces the chunks.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let frames = futures_util::stream::poll_fn(move |context| received.poll_recv(context));
    StreamBody::new(frames).boxed_unsync()
}

fn large(len: usize) -> Body {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 64 * 1024]);
    let mut left = len;
    let frames = futures_util::stream::poll_fn(move |_| {
        let piece = PIECE.slice(..left.min(PIECE.len()));
        left -= piece.len();
        std::task::Poll::Ready((!piece.is_empty()).then(|| Ok::<_, hyper::Error>(Frame::data(piece))))
    });
    StreamBody::new(frames).boxed_unsync()
}

pub fn switch_to_websocket(headers: &HeaderMap) -> Response<Body> {
    let key = headers.get("sec-websocket-key").expect("a WebSocket handshake").as_bytes();
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key);
    let fields = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", accept.as_str())];
    for (name, value) in fields {
        response.headers_mut().insert(name, value.parse().expect("a header value"));
    }
    if let Some(protocol) = headers.get("sec-websocket-protocol") {
        response.headers_mut().insert("sec-websocket-protocol", protocol.clone());
    }
    response
}

pub async fn websocket_echo(upgraded: hyper::upgrade::Upgraded) {
    use futures_util::{SinkExt, StreamExt};
    let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
    let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(TokioIo::new(upgraded), role, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() || socket.send(message).await.is_err() {
            return;
        }
    }
}

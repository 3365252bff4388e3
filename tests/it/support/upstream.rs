//! A backend that remembers what reached it, and answers as its path asks.
//!
//! | path | answer |
//! |---|---|
//! | `/status/N` | that status |
//! | `/slow` | the head after a second |
//! | `/drip` | three chunks, one each 50 ms |
//! | `/hang` | never |
//! | `/close` | the connection closes without an answer |
//! | `/headers` | hop-by-hop and other odd response headers |
//! | `/trailers` | `hello` and the trailer `x-checksum` |
//! | `/large/N` | N bytes, in pieces, of a length that is not told |
//! | `/swallow` | how many bytes the body had; it is not remembered |
//! | `/mirror` | the body, piece by piece as it comes |
//! | `/early` | 200 `early`, before the body is read |
//! | `/goaway` | 200 `hello`, and the end of an HTTP/2 connection |
//! | `/ws` | a WebSocket that echoes |
//! | anything else | 200 `hello`, or the request's body if it had one |

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: String,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Seen {
    /// Path and query.
    pub fn target(&self) -> String {
        let uri: http::Uri = self.uri.parse().expect("a URI");
        uri.path_and_query().expect("a path").to_string()
    }

    /// `:authority`, or the Host header.
    pub fn host(&self) -> String {
        let uri: http::Uri = self.uri.parse().expect("a URI");
        uri.authority().map(ToString::to_string).or(self.header("host").map(str::to_owned)).expect("a host")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<usize>>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

impl Upstream {
    /// HTTP/1.1.
    pub fn start() -> Upstream {
        Self::launch("127.0.0.1:0", false)
    }

    /// HTTP/2 by prior knowledge.
    pub fn start_http2() -> Upstream {
        Self::launch("127.0.0.1:0", true)
    }

    /// HTTP/1.1, at another address.
    pub fn at(address: &str) -> Upstream {
        Self::launch(address, false)
    }

    pub fn http2_at(address: SocketAddr) -> Upstream {
        Self::launch(&address.to_string(), true)
    }

    fn launch(address: &str, http2: bool) -> Upstream {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections: Arc<Mutex<usize>> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (record, count) = (seen.clone(), connections.clone());
        let socket = std::net::TcpListener::bind(address).expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a listener");
                tokio::select! { _ = stopped => {}, () = accept(listener, http2, record, count) => {} }
            });
        });
        Upstream { address, seen, connections, _stop: stop }
    }

    /// Everything that reached it so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("unpoisoned").clone()
    }

    /// The only request that reached it.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    /// Connections that were opened to it.
    pub fn connections(&self) -> usize {
        *self.connections.lock().expect("unpoisoned")
    }
}

async fn accept(listener: TcpListener, http2: bool, seen: Arc<Mutex<Vec<Seen>>>, connections: Arc<Mutex<usize>>) {
    while let Ok((stream, _)) = listener.accept().await {
        *connections.lock().expect("unpoisoned") += 1;
        tokio::spawn(serve(stream, http2, seen.clone()));
    }
}

async fn serve(stream: TcpStream, http2: bool, seen: Arc<Mutex<Vec<Seen>>>) {
    let goodbye = Arc::new(Notify::new());
    let asked = goodbye.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        if request.uri().path() == "/goaway" {
            asked.notify_one();
        }
        answer(request, seen.clone())
    });
    let io = TokioIo::new(stream);
    // A test that ends leaves its connections as they are.
    if http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = goodbye.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await;
    }
}

/// The error closes the connection without an answer.
async fn answer(mut request: Request<Incoming>, seen: Arc<Mutex<Vec<Seen>>>) -> Result<Response<Body>, String> {
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let remember = |body: Bytes, trailers| {
        seen.lock().expect("unpoisoned").push(Seen {
            method: head.method.clone(),
            uri: head.uri.to_string(),
            version: head.version,
            headers: head.headers.clone(),
            body,
            trailers,
        });
    };
    if let Some(upgrade) = upgrade {
        remember(Bytes::new(), None);
        tokio::spawn(async move { websocket_echo(upgrade.await.expect("an upgrade")).await });
        return Ok(switch_to_websocket(&head.headers));
    }
    if let "/early" | "/mirror" | "/swallow" = path.as_str() {
        remember(Bytes::new(), None);
        return Ok(Response::new(match path.as_str() {
            "/early" => full("early"),
            "/mirror" => body.boxed_unsync(),
            _ => full(swallow(body).await?.to_string()),
        }));
    }
    let collected = body.collect().await.map_err(|error| error.to_string())?;
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    remember(body.clone(), trailers);
    respond(&path, body).await
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

async fn respond(path: &str, body: Bytes) -> Result<Response<Body>, String> {
    let body_or_hello = if body.is_empty() { Bytes::from_static(b"hello") } else { body };
    let mut response = Response::new(full(body_or_hello.clone()));
    match path {
        "/close" => return Err("asked to close".into()),
        "/hang" => std::future::pending().await,
        "/slow" => tokio::time::sleep(Duration::from_secs(1)).await,
        "/drip" => *response.body_mut() = drip(),
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
    let (chunks, mut received) = mpsc::channel(1);
    tokio::spawn(async move {
        for chunk in ["one ", "two ", "three"] {
            if chunks.send(Ok::<_, hyper::Error>(Frame::data(Bytes::from_static(chunk.as_bytes())))).await.is_err() {
                return;
            }
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

async fn swallow(mut body: Incoming) -> Result<usize, String> {
    let mut swallowed = 0;
    while let Some(frame) = body.frame().await {
        swallowed += frame.map_err(|error| error.to_string())?.data_ref().map_or(0, Bytes::len);
    }
    Ok(swallowed)
}

fn switch_to_websocket(headers: &HeaderMap) -> Response<Body> {
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

async fn websocket_echo(upgraded: hyper::upgrade::Upgraded) {
    use futures_util::{SinkExt, StreamExt};
    let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
    let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(TokioIo::new(upgraded), role, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() || socket.send(message).await.is_err() {
            return;
        }
    }
}

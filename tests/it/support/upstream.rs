//! A backend that records its requests. The path of a request chooses the response.
//!
//! | path | response |
//! |---|---|
//! | `/status/N` | that status |
//! | `/slow` | 200 `hello` after a second |
//! | `/drip` | three chunks, one every 50 ms |
//! | `/private/events` | server-sent events: a heartbeat every 50 ms, until the client disconnects |
//! | `/hang` | none |
//! | `/close` | none; the backend closes the connection |
//! | `/headers` | hop-by-hop and other unusual headers |
//! | `/trailers` | `hello` and the trailer `x-checksum` |
//! | `/large/N` | N bytes, without a Content-Length |
//! | `/swallow` | the number of bytes of the request's body; the body is not recorded |
//! | `/mirror` | the request's body, each chunk when it arrives |
//! | `/early` | 200 `early`, before the request's body is read |
//! | `/honest` | 200 `hello`; the request is neither recorded nor counted |
//! | `/goaway` | 200 `hello`; the backend shuts down the HTTP/2 connection |
//! | `/ws` | a WebSocket that echoes |
//! | any other | 200 `hello`, or the request's body if it has one |

mod responses;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use responses::Body;

/// A request as the backend received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: Method,
    pub uri: String,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl ReceivedRequest {
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
    memory: Arc<Memory>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

#[derive(Default)]
struct Memory {
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
}

impl Upstream {
    /// HTTP/1.1.
    pub fn start() -> Upstream {
        Self::launch("127.0.0.1:0", false)
    }

    /// HTTP/2 by prior knowledge.
    pub fn start_http2() -> Upstream {
        Self::launch("127.0.0.1:0", true)
    }

    /// HTTP/1.1, at a given address.
    pub fn at(address: &str) -> Upstream {
        Self::launch(address, false)
    }

    /// HTTP/2 by prior knowledge, at a given address.
    pub fn http2_at(address: SocketAddr) -> Upstream {
        Self::launch(&address.to_string(), true)
    }

    fn launch(address: &str, http2: bool) -> Upstream {
        let memory: Arc<Memory> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let recording = memory.clone();
        let socket = std::net::TcpListener::bind(address).expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a listener");
                tokio::select! { _ = stopped => {}, () = accept(listener, http2, recording) => {} }
            });
        });
        Upstream { address, memory, _stop: stop }
    }

    /// All requests that it received so far.
    pub fn seen(&self) -> Vec<ReceivedRequest> {
        self.memory.seen.lock().expect("unpoisoned").clone()
    }

    /// Removes all recorded requests.
    pub fn forget(&self) {
        self.memory.seen.lock().expect("unpoisoned").clear();
    }

    /// Returns the request that it received. Panics unless there is exactly one.
    pub fn only_request(&self) -> ReceivedRequest {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    /// Number of connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.memory.connections.load(Ordering::SeqCst)
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.memory.in_flight.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, http2: bool, memory: Arc<Memory>) {
    while let Ok((stream, _)) = listener.accept().await {
        memory.connections.fetch_add(1, Ordering::SeqCst);
        // As servers do: with Nagle's algorithm, each frame waits for a delayed acknowledgement of 40 ms.
        stream.set_nodelay(true).expect("a socket");
        tokio::spawn(serve(stream, http2, memory.clone()));
    }
}

async fn serve(stream: TcpStream, http2: bool, memory: Arc<Memory>) {
    let shutdown = Arc::new(Notify::new());
    let requested = shutdown.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        if request.uri().path() == "/goaway" {
            requested.notify_one();
        }
        respond(request, memory.clone())
    });
    let io = TokioIo::new(stream);
    // How the connection ends does not matter to a test.
    if http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = shutdown.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await;
    }
}

/// An error closes the connection without a response.
async fn respond(mut request: Request<Incoming>, memory: Arc<Memory>) -> Result<Response<Body>, String> {
    if request.uri().path() == "/honest" {
        return Ok(Response::new(responses::full("hello")));
    }
    let _in_flight = InFlight::begin(memory.clone());
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let record = |body: Bytes, trailers| {
        memory.seen.lock().expect("unpoisoned").push(ReceivedRequest {
            method: head.method.clone(),
            uri: head.uri.to_string(),
            version: head.version,
            headers: head.headers.clone(),
            body,
            trailers,
        });
    };
    if let Some(upgrade) = upgrade {
        record(Bytes::new(), None);
        tokio::spawn(async move { responses::websocket_echo(upgrade.await.expect("an upgrade")).await });
        return Ok(responses::switch_to_websocket(&head.headers));
    }
    if let "/early" | "/mirror" | "/swallow" = path.as_str() {
        record(Bytes::new(), None);
        return Ok(Response::new(match path.as_str() {
            "/early" => responses::full("early"),
            "/mirror" => body.boxed_unsync(),
            _ => responses::full(count_bytes(body).await?.to_string()),
        }));
    }
    let collected = body.collect().await.map_err(|error| error.to_string())?;
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    record(body.clone(), trailers);
    responses::respond(&path, body).await
}

async fn count_bytes(mut body: Incoming) -> Result<usize, String> {
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame.map_err(|error| error.to_string())?.data_ref().map_or(0, Bytes::len);
    }
    Ok(count)
}

/// Counts a request as in flight until it is dropped.
struct InFlight(Arc<Memory>);

impl InFlight {
    fn begin(memory: Arc<Memory>) -> InFlight {
        memory.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(memory)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

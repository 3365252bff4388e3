//! A backend that remembers what reached it, and answers as its path asks.
//!
//! | path | answer |
//! |---|---|
//! | `/status/N` | that status |
//! | `/slow` | the head after a second |
//! | `/drip` | three chunks, one each 50 ms |
//! | `/private/events` | server-sent events: a heartbeat each 50 ms, until nobody listens |
//! | `/hang` | never |
//! | `/close` | the connection closes without an answer |
//! | `/headers` | hop-by-hop and other odd response headers |
//! | `/trailers` | `hello` and the trailer `x-checksum` |
//! | `/large/N` | N bytes, in pieces, of a length that is not told |
//! | `/swallow` | how many bytes the body had; it is not remembered |
//! | `/mirror` | the body, piece by piece as it comes |
//! | `/early` | 200 `early`, before the body is read |
//! | `/honest` | 200 `hello`; it is neither remembered nor counted |
//! | `/goaway` | 200 `hello`, and the end of an HTTP/2 connection |
//! | `/ws` | a WebSocket that echoes |
//! | anything else | 200 `hello`, or the request's body if it had one |

mod answers;

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

use answers::Body;

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
    memory: Arc<Memory>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

#[derive(Default)]
struct Memory {
    seen: Mutex<Vec<Seen>>,
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

    /// HTTP/1.1, at another address.
    pub fn at(address: &str) -> Upstream {
        Self::launch(address, false)
    }

    pub fn http2_at(address: SocketAddr) -> Upstream {
        Self::launch(&address.to_string(), true)
    }

    fn launch(address: &str, http2: bool) -> Upstream {
        let memory: Arc<Memory> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let remembers = memory.clone();
        let socket = std::net::TcpListener::bind(address).expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a listener");
                tokio::select! { _ = stopped => {}, () = accept(listener, http2, remembers) => {} }
            });
        });
        Upstream { address, memory, _stop: stop }
    }

    /// Everything that reached it so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.memory.seen.lock().expect("unpoisoned").clone()
    }

    /// What reached it so far is not of interest any more.
    pub fn forget(&self) {
        self.memory.seen.lock().expect("unpoisoned").clear();
    }

    /// The only request that reached it.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    /// Connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.memory.connections.load(Ordering::SeqCst)
    }

    /// Requests that it is about to answer.
    pub fn in_flight(&self) -> usize {
        self.memory.in_flight.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, http2: bool, memory: Arc<Memory>) {
    while let Ok((stream, _)) = listener.accept().await {
        memory.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(serve(stream, http2, memory.clone()));
    }
}

async fn serve(stream: TcpStream, http2: bool, memory: Arc<Memory>) {
    let goodbye = Arc::new(Notify::new());
    let asked = goodbye.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        if request.uri().path() == "/goaway" {
            asked.notify_one();
        }
        answer(request, memory.clone())
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
async fn answer(mut request: Request<Incoming>, memory: Arc<Memory>) -> Result<Response<Body>, String> {
    if request.uri().path() == "/honest" {
        return Ok(Response::new(answers::full("hello")));
    }
    let _in_flight = InFlight::begin(memory.clone());
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let remember = |body: Bytes, trailers| {
        memory.seen.lock().expect("unpoisoned").push(Seen {
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
        tokio::spawn(async move { answers::websocket_echo(upgrade.await.expect("an upgrade")).await });
        return Ok(answers::switch_to_websocket(&head.headers));
    }
    if let "/early" | "/mirror" | "/swallow" = path.as_str() {
        remember(Bytes::new(), None);
        return Ok(Response::new(match path.as_str() {
            "/early" => answers::full("early"),
            "/mirror" => body.boxed_unsync(),
            _ => answers::full(swallow(body).await?.to_string()),
        }));
    }
    let collected = body.collect().await.map_err(|error| error.to_string())?;
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    remember(body.clone(), trailers);
    answers::respond(&path, body).await
}

async fn swallow(mut body: Incoming) -> Result<usize, String> {
    let mut swallowed = 0;
    while let Some(frame) = body.frame().await {
        swallowed += frame.map_err(|error| error.to_string())?.data_ref().map_or(0, Bytes::len);
    }
    Ok(swallowed)
}

/// Counts a request until it is answered or given up.
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

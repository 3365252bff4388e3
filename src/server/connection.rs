//! One client connection, from the handshake to its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use crate::body::Body;
use crate::gateway::Worker;
use crate::headers::Origin;
use crate::metrics::{Count, WorkerMetrics};
use crate::peer::Peer;
use crate::socket;

/// What an HTTP/2 client with prior knowledge begins with (RFC 9113 section 3.4). No HTTP/1 method is `PRI`.
const PREFACE_START: &[u8] = b"PRI";

/// Serves one accepted connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    alive: mpsc::Sender<Infallible>,
) {
    // Over the limit a connection is closed at once: waiting in the queue would make honest clients pay for the crowd.
    let Ok(place) = shared.places.clone().try_acquire_owned() else { return };
    worker.metrics.connections_opened.one();
    let _closed = Closed(worker.metrics.clone());
    socket::tune(&stream);
    let origin = Origin::new(address.ip(), tls.is_some());
    let peer = Arc::new(Peer { address, origin, requests: Count::default(), kept: Box::new((place, alive)) });
    let ended = match tls {
        None => serve_cleartext(stream, peer, shared, &worker).await,
        Some(config) => serve_tls(stream, config, peer, shared, &worker).await,
    };
    if let Err(error) = ended {
        tracing::debug!(client = %address, %error, "connection ended");
    }
}

async fn serve_tls(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    let handshake = TlsAcceptor::from(config).accept(stream);
    let accepted = tokio::time::timeout(shared.settings.tls_handshake, handshake).await;
    let stream = match accepted.map_err(io::Error::from).flatten() {
        Ok(stream) => stream,
        Err(error) => {
            worker.metrics.handshakes_failed.one();
            return Err(error);
        }
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    serve_http(stream, http2, peer, shared, worker).await
}

async fn serve_cleartext(
    stream: TcpStream,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    let http2 = tokio::time::timeout(shared.settings.head, begins_with_preface(&stream)).await??;
    serve_http(stream, http2, peer, shared, worker).await
}

/// Looks at the first three bytes without taking them.
async fn begins_with_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE_START.len()];
    loop {
        let seen = stream.peek(&mut start).await?;
        if seen == 0 || seen == start.len() || start[..seen] != PREFACE_START[..seen] {
            return Ok(start == PREFACE_START);
        }
        // The rest of three bytes is a moment away; peeking tells of these two again at once.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn serve_http<S>(
    stream: S,
    http2: bool,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (serving, asking, worker) = (shared.clone(), peer.clone(), worker.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (gateway, peer, worker) = (serving.gateway.load_full(), asking.clone(), worker.clone());
        async move { Ok::<Response<Body>, Infallible>(gateway.handle(request, &peer, &worker).await) }
    });
    let io = TokioIo::new(stream);
    // Boxed: a connection's memory is then that of its own protocol, once, however many functions it passes through.
    let ended = if http2 {
        let connection = Box::pin(http2_builder(&shared).serve_connection(io, service));
        drive_http2(connection, &shared, peer).await
    } else {
        let connection = http1_builder(&shared).serve_connection(io, service);
        drive_http1(Box::pin(connection.with_upgrades()), &shared).await
    };
    ended.map_err(io::Error::other)
}

/// Drives a connection to its end; when the process drains, to the end of the request it is in.
async fn drive_http1<S, V>(
    mut connection: Pin<Box<http1::UpgradeableConnection<TokioIo<S>, V>>>,
    shared: &Shared,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: hyper::service::HttpService<Incoming, ResBody = Body>,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shared.drains() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// As for HTTP/1, and ends a connection on which nothing was asked for a while: HTTP/2 has no time limit of its own, neither
/// for an idle connection nor for a header block that never ends.
async fn drive_http2<S, V>(
    mut connection: Pin<Box<http2::Connection<TokioIo<S>, V, TokioExecutor>>>,
    shared: &Shared,
    peer: Arc<Peer>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: hyper::service::HttpService<Incoming, ResBody = Body>,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut seen = 0;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = shared.drains() => break,
            () = tokio::time::sleep(shared.settings.keep_alive) => {
                // Each request under way holds the peer, as do this function and the service.
                let idle = Arc::strong_count(&peer) <= 2;
                if idle && peer.requests.get() == seen {
                    connection.as_mut().graceful_shutdown();
                    // A client that does not answer to that has no request to lose.
                    return tokio::time::timeout(shared.settings.head, connection).await.unwrap_or(Ok(()));
                }
                seen = peer.requests.get();
            }
        }
    }
    drop(peer);
    connection.as_mut().graceful_shutdown();
    connection.await
}

fn http1_builder(shared: &Shared) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.settings.head)
        .max_headers(shared.settings.headers)
        .max_header_size(shared.settings.head_size);
    builder
}

fn http2_builder(shared: &Shared) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(shared.settings.streams)
        .max_header_list_size(u32::try_from(shared.settings.head_size).unwrap_or(u32::MAX))
        // A client that vanished is noticed; one that is there answers the ping.
        .keep_alive_interval(shared.settings.keep_alive)
        .keep_alive_timeout(shared.settings.head)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(100);
    builder
}

/// Counts a connection's end, however it comes.
struct Closed(Arc<WorkerMetrics>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.connections_closed.one();
    }
}

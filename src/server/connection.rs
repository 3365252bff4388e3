//! One client connection, from the handshake to its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::stream::{ClientStream, Corked, Readable};
use crate::body::Body;
use crate::gateway::Worker;
use crate::headers::Origin;
use crate::metrics::{Count, WorkerMetrics};
use crate::peer::Peer;
use crate::socket;
use crate::tls::{ServerSide, Sni};

/// What an HTTP/2 client with prior knowledge begins with (RFC 9113 section 3.4). No HTTP/1 method is `PRI`.
const PREFACE_START: &[u8] = b"PRI";

/// An HTTP/1 connection without a request for so long gives its buffers back. Long enough that a busy one never does, as
/// beginning again costs about 2 µs; short enough that thousands of idle ones never add up.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// A connection that is accepted while the process drains has so long to ask something.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// An HTTP/2 client that was told that the connection ends has so long to say something.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one accepted connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerSide>>,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    alive: mpsc::Sender<Infallible>,
) {
    // Over the limit a connection is closed at once: waiting in the queue would make honest clients pay for the crowd.
    let Ok(place) = shared.places.clone().try_acquire_owned() else {
        return worker.metrics.connections_refused.one();
    };
    worker.metrics.connections_opened.one();
    let _closed = Closed(worker.metrics.clone());
    socket::tune(&stream);
    let origin = Origin::new(address.ip(), tls.is_some());
    let kept = Box::new((place, alive));
    let peer = Peer { address, origin, sni: None, requests: Count::default(), kept };
    let ended = match tls {
        None => serve_cleartext(stream, Arc::new(peer), shared, &worker).await,
        Some(side) => serve_tls(stream, side, peer, shared, &worker).await,
    };
    if let Err(error) = ended {
        tracing::debug!(client = %address, %error, "connection ended");
    }
}

async fn serve_tls(
    stream: TcpStream,
    side: Arc<ServerSide>,
    mut peer: Peer,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    let handshake = TlsAcceptor::from(side.config.clone()).accept(Corked::new(stream));
    let accepted = tokio::time::timeout(shared.settings.tls_handshake, handshake).await;
    let mut stream = match accepted.map_err(io::Error::from).flatten() {
        Ok(stream) => stream,
        Err(error) => {
            worker.metrics.handshakes_failed.one();
            return Err(error);
        }
    };
    stream.get_mut().0.uncork();
    let session = stream.get_ref().1;
    peer.sni = session.server_name().map(|name| Sni { name: name.to_owned(), side });
    let http2 = session.alpn_protocol() == Some(b"h2");
    serve_http(stream, http2, Arc::new(peer), shared, worker).await
}

async fn serve_cleartext(
    stream: TcpStream,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    let http2 = tokio::select! {
        seen = begins_with_preface(&stream) => seen?,
        () = tokio::time::sleep(shared.settings.head) => return Err(io::ErrorKind::TimedOut.into()),
        () = shared.has_drained_for(FIRST_REQUEST) => return Ok(()),
    };
    serve_http(stream, http2, peer, shared, worker).await
}

/// Looks at the first three bytes without taking them.
async fn begins_with_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE_START.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = stream.peek(&mut start).await?;
        if seen == 0 || seen == start.len() || start[..seen] != PREFACE_START[..seen] {
            return Ok(start == PREFACE_START);
        }
        // The rest of three bytes is a moment away; peeking tells of these two again at once. Whoever lets us wait for
        // it on purpose is looked after ever more rarely.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
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
    S: AsyncRead + AsyncWrite + Readable + Unpin + Send + 'static,
{
    let (serving, asking, by) = (shared.clone(), peer.clone(), worker.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (gateway, peer, worker) = (serving.gateway.load_full(), asking.clone(), by.clone());
        async move { Ok::<Response<Body>, Infallible>(gateway.handle(request, &peer, &worker).await) }
    });
    let stream = ClientStream::new(stream, shared.settings.write);
    // Boxed: a connection's memory is then that of its own protocol, once, however many functions it passes through.
    let ended = if http2 {
        let connection = Box::pin(http2_builder(&shared).serve_connection(TokioIo::new(stream), service));
        drive_http2(connection, &shared, &peer).await
    } else {
        serve_http1(stream, service, &shared, &peer).await
    };
    ended.map_err(|error| {
        if error.is_parse() {
            shared.gateway.load().note_unreadable(&peer, worker, &error);
        }
        io::Error::other(error)
    })
}

/// Serves HTTP/1, one hyper connection after the other on the same stream: whenever it falls idle, hyper is ended, and its
/// buffers with it, until the client speaks again. An idle connection then costs what its TLS session does.
async fn serve_http1<S, V>(
    mut stream: ClientStream<S>,
    service: V,
    shared: &Shared,
    peer: &Arc<Peer>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Readable + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        let keeper = stream.keeper();
        let connection = http1_builder(shared).serve_connection(TokioIo::new(stream), service.clone());
        let Some(idle) = drive_http1(Box::pin(connection.with_upgrades()), &keeper, shared, peer).await? else {
            return Ok(());
        };
        tokio::select! {
            biased;
            readable = idle.readable() => if readable.is_err() { return Ok(()) },
            // An idle client has `timeouts.head` from one request to the next, as it has with hyper.
            () = tokio::time::sleep(shared.settings.head) => return Ok(()),
            () = shared.drains() => return Ok(()),
        }
        stream = idle;
    }
}

/// Drives a connection to its end; when the process drains, to the end of the request it is in. If it falls idle, hyper is
/// ended and the stream comes back.
async fn drive_http1<S, V>(
    mut connection: Pin<Box<http1::UpgradeableConnection<TokioIo<ClientStream<S>>, V>>>,
    keeper: &AtomicBool,
    shared: &Shared,
    peer: &Arc<Peer>,
) -> hyper::Result<Option<ClientStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Unpin,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut idle = Idle::watch(peer);
    let begun_with = peer.requests.get();
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended.map(|()| None),
            () = shared.drains() => {
                if let Some(ended) = first_request(&mut connection, peer).await {
                    return ended.map(|()| None);
                }
                connection.as_mut().graceful_shutdown();
                return connection.await.map(|()| None);
            }
            () = tokio::time::sleep(IDLE_AFTER) => {
                // Only after a request: the time that a client has for its first head, or for one it has begun, is
                // hyper's to measure, and must not begin again.
                if idle.since_last_asked(peer) && peer.requests.get() > begun_with {
                    break;
                }
            }
        }
    }
    keeper.store(true, Ordering::Relaxed);
    connection.as_mut().graceful_shutdown();
    connection.as_mut().await?;
    let parts = Pin::into_inner(connection).into_parts();
    Ok(parts.map(|parts| parts.io.into_inner().taken_back(parts.read_buf)))
}

/// Drives a connection to its first request, if it has had none. Being accepted, it was promised an answer, and the request
/// may be on its way.
async fn first_request<C: Future>(connection: &mut Pin<Box<C>>, peer: &Peer) -> Option<C::Output> {
    let asked = std::future::poll_fn(|context| match connection.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if peer.requests.get() > 0 => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    tokio::time::timeout(FIRST_REQUEST, asked).await.ok().flatten()
}

/// As for HTTP/1, and ends a connection on which nothing was asked for a while: HTTP/2 has no time limit of its own, neither
/// for an idle connection nor for a header block that never ends.
async fn drive_http2<S, V>(
    mut connection: Pin<Box<http2::Connection<TokioIo<S>, V, TokioExecutor>>>,
    shared: &Shared,
    peer: &Arc<Peer>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body>,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut idle = Idle::watch(peer);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = shared.drains() => break,
            () = tokio::time::sleep(shared.settings.keep_alive) => if idle.since_last_asked(peer) { break },
        }
    }
    // Tells the client, and takes what it sent before it knew.
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            // A client that does not answer to that has no request to lose.
            () = tokio::time::sleep(GOODBYE) => if idle.since_last_asked(peer) { return Ok(()) },
        }
    }
}

/// Tells whether a connection lies idle.
struct Idle {
    /// How often the peer is held while nothing goes on. Each request under way holds it too, and each body and tunnel
    /// that is left of one.
    unused: usize,
    requests: u64,
}

impl Idle {
    fn watch(peer: &Arc<Peer>) -> Self {
        Idle { unused: Arc::strong_count(peer), requests: peer.requests.get() }
    }

    /// Has nothing gone on since this was asked the last time?
    fn since_last_asked(&mut self, peer: &Arc<Peer>) -> bool {
        let before = std::mem::replace(&mut self.requests, peer.requests.get());
        Arc::strong_count(peer) <= self.unused && self.requests == before
    }
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

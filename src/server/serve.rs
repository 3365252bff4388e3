//! Speaking HTTP with one client, to the connection's end: its last answer, its idle limit, or the drain.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::Shared;
use super::client_io::{ClientStream, Readable};
use super::executor::Executor;
use super::request_heads::Exchange;
use crate::gateway::client::Peer;
use crate::protocols::http::body::Body;
use crate::telemetry::metrics::WorkerMetrics;

/// An HTTP/1 connection without a request for so long gives its buffers back. Long enough that a busy one never does, as
/// beginning again costs about 2 µs; short enough that few of those that come at once have buffers at the same time, as what
/// these leave in the heap are holes.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// Between two looks at one whose request goes on and on.
const LOOK: Duration = Duration::from_millis(250);

/// A connection that is accepted while the process drains has so long to ask something.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// An HTTP/1 client that was answered so recently may be asking again: it could not know. With the next answer it is told. As
/// long as a few round trips around the world.
const NEXT_REQUEST: Duration = Duration::from_millis(500);

/// An HTTP/2 client that was told that the connection ends has so long to say something.
const GOODBYE: Duration = Duration::from_secs(1);

/// HTTP/1: one hyper connection after the other on the same stream: whenever it falls idle, hyper is ended, and its
/// buffers with it, until the client speaks again. An idle connection then costs what its TLS session does.
pub(super) async fn http1<S, V>(
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
    let old_at = Instant::now() + shared.settings.max_connection_age;
    loop {
        let exchange = stream.exchange();
        let connection = http1_builder(shared).serve_connection(TokioIo::new(stream), service.clone());
        let driving = drive_http1(Box::pin(connection.with_upgrades()), &exchange, shared, peer, old_at);
        let Some(mut idle) = driving.await? else {
            return Ok(());
        };
        let fell_idle = Instant::now();
        let goes_on = tokio::select! {
            biased;
            readable = idle.readable() => readable.is_ok(),
            // An idle client has `timeouts.request_header` from one request to the next, as it has for its first.
            () = tokio::time::sleep_until(old_at.min(fell_idle + shared.settings.request_header)) => false,
            () = shared.drains_after(fell_idle + NEXT_REQUEST) => false,
        };
        if !goes_on {
            // A client that is gone does not hear it.
            let _ = idle.shutdown().await;
            return Ok(());
        }
        stream = idle;
    }
}

/// Drives a connection to its end; when the process drains, to the end of the request it is in, or of the one that is on its
/// way. If it falls idle, hyper is ended and the stream comes back.
async fn drive_http1<S, V>(
    mut connection: Pin<Box<http1::UpgradeableConnection<TokioIo<ClientStream<S>>, V>>>,
    exchange: &Exchange,
    shared: &Shared,
    peer: &Arc<Peer>,
    old_at: Instant,
) -> hyper::Result<Option<ClientStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Unpin,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut idle = Idle::watch(peer);
    let (begun_with, mut quiet_since) = (peer.requests.get(), Instant::now());
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended.map(|()| None),
            // Asked whenever the connection is looked at, which is every [`LOOK`] or [`IDLE_AFTER`] if nothing else happens.
            () = poll_fn(|_| if shared.is_draining() { Poll::Ready(()) } else { Poll::Pending }) => {
                // Behind an answer that has begun comes the end at once. Any other can say so itself.
                let is_answering = idle.is_in_use(peer) && exchange.has_answered(peer.requests.get());
                if !is_answering && let Some(ended) = last_request(&mut connection, &mut idle, peer).await {
                    return ended.map(|()| None);
                }
                connection.as_mut().graceful_shutdown();
                return connection.await.map(|()| None);
            }
            () = tokio::time::sleep(idle.next_look().min(shared.settings.request_header)) => {
                if Instant::now() >= old_at {
                    connection.as_mut().graceful_shutdown();
                    return connection.await.map(|()| None);
                }
                if !idle.since_last_asked(peer) {
                    quiet_since = Instant::now();
                    continue;
                }
                // Only after a request: the time that a client has for its first head, or for one it has begun, must not
                // begin again.
                if peer.requests.get() > begun_with && exchange.goes_on() {
                    break;
                }
                if quiet_since.elapsed() >= shared.settings.request_header {
                    tracing::debug!(client = %peer.address, "closed: no whole head in time");
                    return Ok(None);
                }
            }
        }
    }
    let asked = peer.requests.get();
    exchange.kept_open.store(true, Ordering::Relaxed);
    connection.as_mut().graceful_shutdown();
    connection.as_mut().await?;
    let Some(parts) = Pin::into_inner(connection).into_parts() else { return Ok(None) };
    let mut stream = parts.io.into_inner().taken_back(parts.read_buf);
    // What came in the same moment was told that the connection ends.
    if !exchange.goes_on() || peer.requests.get() != asked {
        let _ = stream.shutdown().await;
        return Ok(None);
    }
    Ok(Some(stream))
}

/// Drives a connection of a process that drains until it ends, as it does with its next answer, or until nothing is asked on it.
/// To close it earlier would be to lose a request that is on its way: being accepted, it was promised an answer, or the answer
/// before it said nothing of an end.
async fn last_request<C: Future>(connection: &mut Pin<Box<C>>, idle: &mut Idle, peer: &Arc<Peer>) -> Option<C::Output> {
    // What was before does not count.
    idle.since_last_asked(peer);
    loop {
        let patience = if peer.requests.get() == 0 { FIRST_REQUEST } else { NEXT_REQUEST };
        if let Ok(ended) = tokio::time::timeout(patience, connection.as_mut()).await {
            return Some(ended);
        }
        if idle.since_last_asked(peer) {
            return None;
        }
    }
}

/// As for HTTP/1, and ends a connection on which nothing was asked for a while: HTTP/2 has no time limit of its own, neither
/// for an idle connection nor for a header block that never ends.
pub(super) async fn http2<S, V>(
    stream: ClientStream<S>,
    service: V,
    shared: &Shared,
    peer: &Arc<Peer>,
    metrics: &Arc<WorkerMetrics>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body>,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Boxed: it is large, and this future passes through several functions.
    let mut connection = Box::pin(http2_builder(shared, metrics).serve_connection(TokioIo::new(stream), service));
    let mut idle = Idle::watch(peer);
    let old_at = Instant::now() + shared.settings.max_connection_age;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = shared.drains() => break,
            () = poll_fn(|_| if peer.is_at_last_request() { Poll::Ready(()) } else { Poll::Pending }) => break,
            () = tokio::time::sleep_until(old_at) => break,
            () = tokio::time::sleep(shared.settings.http2_idle) => if idle.since_last_asked(peer) { break },
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
    /// How often the peer is held while nothing goes on. Each request under way holds it too, and each answer and tunnel
    /// that is left of one. An upload that goes on after its answer does not: see [`Exchange::goes_on`].
    unused: usize,
    requests: u64,
    /// Something was under way when this was asked the last time.
    was_in_use: bool,
}

impl Idle {
    fn watch(peer: &Arc<Peer>) -> Self {
        Idle { unused: Arc::strong_count(peer), requests: peer.requests.get(), was_in_use: false }
    }

    /// Has nothing gone on since this was asked the last time?
    fn since_last_asked(&mut self, peer: &Arc<Peer>) -> bool {
        let before = std::mem::replace(&mut self.requests, peer.requests.get());
        let is_in_use = self.is_in_use(peer);
        let was_in_use = std::mem::replace(&mut self.was_in_use, is_in_use);
        !was_in_use && !is_in_use && self.requests == before
    }

    fn is_in_use(&self, peer: &Arc<Peer>) -> bool {
        Arc::strong_count(peer) > self.unused
    }

    /// Until it is worth asking again: streams are not looked at as often.
    fn next_look(&self) -> Duration {
        if self.was_in_use { LOOK } else { IDLE_AFTER }
    }
}

fn http1_builder(shared: &Shared) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // `drive_http1` has the time for a head. hyper would set a timer for each.
        .header_read_timeout(None)
        .max_headers(shared.settings.request_header_count)
        .max_header_size(shared.settings.request_header_size);
    builder
}

fn http2_builder(shared: &Shared, metrics: &Arc<WorkerMetrics>) -> http2::Builder<Executor> {
    let mut builder = http2::Builder::new(Executor {
        write: shared.settings.write,
        least: shared.settings.min_download_rate,
        metrics: metrics.clone(),
    });
    builder
        .timer(TokioTimer::new())
        // RFC 8441: WebSockets.
        .enable_connect_protocol()
        .max_concurrent_streams(shared.settings.http2_concurrent_streams)
        .max_header_list_size(u32::try_from(shared.settings.request_header_size).unwrap_or(u32::MAX))
        // A client that vanished is noticed; one that is there answers the ping.
        .keep_alive_interval(shared.settings.http2_idle)
        .keep_alive_timeout(shared.settings.request_header)
        // Of one answer, written and not sent yet. A connection may have `http2_concurrent_streams` of them.
        .max_send_buf_size(128 * 1024)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(100);
    builder
}

//! Drives an HTTP/2 connection until it ends.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::client_io::ClientStream;
use super::corked_stream::cork;
use super::executor::Executor;
use super::idle::IdleCheck;
use super::settings::ConnectionSettings;
use super::shared::{Shared, sender};
use super::transport::Transport;
use crate::gateway::client::Peer;
use crate::gateway::source::SourceKind;
use crate::protocols::http::body::Body;
use crate::telemetry::metrics::WorkerMetrics;

/// How long a client may send nothing after GOAWAY before its connection is closed.
const GOAWAY_TIME: Duration = Duration::from_secs(1);

/// Maximum requests of a connection that are reset before the gateway has seen them (CVE-2023-44487).
const MAX_UNSEEN_RESETS: usize = 20;
/// The same, if one packet of a client of a proxy can make the proxy reset many calls.
const MAX_UNSEEN_RESETS_OF_PROXIES: usize = 10_000;

/// How often the gateway checks whether a connection that was in use is idle now.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves requests until the client closes the connection, or until the drain, the maximum age, the last request or
/// `timeouts.http2_idle` ends it. HTTP/2 has no time limit of its own, neither for an idle connection nor for a header
/// block that never ends.
pub(super) async fn drive<S, V>(
    stream: Box<ClientStream<S>>,
    service: V,
    shared: &Shared,
    peer: &Peer,
    metrics: &Arc<WorkerMetrics>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Transport + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body>,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Boxed: it is large, and this future passes through several functions.
    let settings = shared.settings.load_full();
    let asks = matches!(sender(peer, &shared.gateway.load()), SourceKind::AskingProxy { .. });
    // Responses that are ready at the same time leave in one write.
    let (stream, cork) = cork(stream);
    let mut connection = Box::pin(builder(&settings, metrics, asks).serve_connection(TokioIo::new(stream), service));
    let max_age = Instant::now() + shared.max_age(peer, settings.max_connection_age);
    tokio::select! {
        biased;
        ended = cork.drive(&mut connection) => return ended,
        () = shared.drain_begins() => {}
        () = poll_fn(|_| if peer.must_close() { Poll::Ready(()) } else { Poll::Pending }) => {}
        () = tokio::time::sleep_until(max_age) => {}
        () = idle_too_long(peer, shared, settings.http2_idle) => {}
    }
    let mut idle = IdleCheck::new(peer);
    // Sends GOAWAY, and still serves the requests that the client sent before it received that.
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            biased;
            ended = cork.drive(&mut connection) => return ended,
            // A client that does not reply to GOAWAY has no request to lose.
            () = tokio::time::sleep(GOAWAY_TIME) => if idle.was_idle(peer) { return Ok(()) },
        }
    }
}

/// Returns when the connection was idle for `timeouts.http2_idle`, or has to make room for another one.
async fn idle_too_long(peer: &Peer, shared: &Shared, limit: Duration) {
    let mut check = IdleCheck::new(peer);
    loop {
        let mut idle_since = Instant::now();
        loop {
            tokio::time::sleep(CHECK_INTERVAL.min(limit / 4)).await;
            if check.was_idle(peer) {
                break;
            }
            idle_since = Instant::now();
        }
        // Until the next request, nothing has to be checked.
        let idle = shared.idle.enter(idle_since);
        tokio::select! {
            biased;
            // A request comes with a poll of this task.
            () = poll_fn(|_| if check.is_idle(peer) { Poll::Pending } else { Poll::Ready(()) }) => {}
            () = tokio::time::sleep_until(idle_since + limit) => return,
            () = idle.must_close() => return,
        }
    }
}

/// `asks`: the client is a proxy that asks about the requests of its clients. Each that leaves resets a call.
fn builder(settings: &ConnectionSettings, metrics: &Arc<WorkerMetrics>, asks: bool) -> http2::Builder<Executor> {
    let most_unseen = if asks { MAX_UNSEEN_RESETS_OF_PROXIES } else { MAX_UNSEEN_RESETS };
    let mut builder = http2::Builder::new(Executor {
        write: settings.write,
        least: settings.min_download_rate,
        metrics: metrics.clone(),
    });
    builder
        .timer(TokioTimer::new())
        // RFC 8441: WebSockets.
        .enable_connect_protocol()
        .max_concurrent_streams(settings.http2_concurrent_streams)
        // Twice the limit: h2 responds to a larger head itself, without a body, CORS fields or a line in the access
        // log, and ends the connection if it is larger than four times this value. The gateway rejects what is between.
        // h2 tells the client the same value, as it has no other one to tell (SETTINGS_MAX_HEADER_LIST_SIZE).
        .max_header_list_size(u32::try_from(2 * settings.request_header_size).unwrap_or(u32::MAX))
        // Detects clients that vanished: they do not reply to the ping.
        .keep_alive_interval(settings.http2_idle)
        .keep_alive_timeout(settings.request_header)
        // Maximum bytes of one response that are buffered. A connection has up to `http2_concurrent_streams` responses.
        .max_send_buf_size(128 * 1024)
        .max_pending_accept_reset_streams(most_unseen)
        .max_local_error_reset_streams(100);
    builder
}

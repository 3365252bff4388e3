//! Drives an HTTP/1 connection until it ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::client_io::ClientStream;
use super::exchange::Exchange;
use super::idle::IdleCheck;
use super::idle_list::Idle;
use super::settings::ConnectionSettings;
use super::shared::{FIRST_REQUEST, Shared, WorkerState};
use super::transport::Transport;
use crate::gateway::client::Peer;
use crate::protocols::http::body::Body;
use crate::protocols::http::framing::Limits;

/// How long a connection stays open during the drain after a response: the client may already be sending its next
/// request, and the response to that one says that the connection closes. As long as a few round trips around the
/// world.
const NEXT_REQUEST: Duration = Duration::from_millis(500);

type Connection<S, V> = Pin<Box<http1::UpgradeableConnection<TokioIo<Box<ClientStream<S>>>, V>>>;

/// Serves requests until the client closes the connection, or until the drain, the maximum age, the last response or a
/// timeout ends it.
///
/// Whenever the connection is idle, the hyper connection is dropped with its buffers, and a new one begins when the
/// client sends something. So an idle connection costs only the memory of its TLS session.
pub(super) async fn drive<S, V>(
    mut stream: Box<ClientStream<S>>,
    service: V,
    state: &WorkerState,
    peer: &Peer,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Transport + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let shared = &*state.shared;
    let settings = shared.settings.load_full();
    let max_age = Instant::now() + shared.max_age(peer, settings.max_connection_age);
    loop {
        let exchange = stream.exchange();
        let requests;
        stream = {
            let connection = builder(&settings).serve_connection(TokioIo::new(stream), service.clone());
            let mut active = ActiveConnection {
                connection: Box::pin(connection.with_upgrades()),
                idle: IdleCheck::new(peer),
                listed: None,
                exchange: &exchange,
                shared,
                header_time: settings.request_header,
                peer,
            };
            let Some(before) = active.drive(max_age).await? else { return Ok(()) };
            let Some(idle) = active.into_stream(settings.head_limits()) else { return Ok(()) };
            requests = before;
            idle
        };
        // The response to a request that came at the very moment of the suspension said that the connection closes.
        let can_continue = exchange.can_continue() && peer.requests.get() == requests;
        if !can_continue || !wait_for_request(&stream, state, &settings, max_age).await {
            // This fails if the client is gone.
            let _ = stream.shutdown().await;
            return Ok(());
        }
    }
}

/// Returns true when the client sends something, and false when the connection has to be closed. A connection is idle
/// here for most of its life, so what this future holds is paid for by each.
async fn wait_for_request<S: Transport>(
    stream: &ClientStream<S>,
    state: &WorkerState,
    settings: &ConnectionSettings,
    max_age: Instant,
) -> bool {
    let idle_since = Instant::now();
    let idle = state.shared.idle.enter(idle_since);
    // `timeouts.request_header` also limits the time between two requests.
    let end = max_age.min(idle_since + settings.request_header);
    tokio::select! {
        biased;
        readable = stream.readable() => return readable.is_ok(),
        () = tokio::time::sleep_until(end) => return false,
        () = idle.must_close() => return false,
        () = state.drain_begins() => {}
    }
    let drained = end.min(idle_since + NEXT_REQUEST);
    tokio::time::timeout_at(drained, stream.readable()).await.is_ok_and(|readable| readable.is_ok())
}

/// What the connection does after an event other than its end.
enum After {
    Continue,
    /// The connection ends after the request in flight.
    CloseGracefully,
    /// The connection is idle: hyper's part of it ends.
    Suspend,
    Close,
}

struct ActiveConnection<'a, S, V>
where
    S: AsyncRead + AsyncWrite + Transport + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body>,
{
    connection: Connection<S, V>,
    idle: IdleCheck,
    /// Set while no request is in flight, so that the connection can make room for another one.
    listed: Option<Idle>,
    exchange: &'a Exchange,
    shared: &'a Shared,
    /// `timeouts.request_header`
    header_time: Duration,
    peer: &'a Peer,
}

impl<S, V> ActiveConnection<'_, S, V>
where
    S: AsyncRead + AsyncWrite + Transport + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Unpin,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Drives the connection until it ends, or until it is idle: then hyper's part of it ends, and this returns how
    /// many requests there were before that. During the drain, the connection ends after the request in flight, or
    /// after the one that is about to arrive.
    async fn drive(&mut self, max_age: Instant) -> hyper::Result<Option<u64>> {
        let requests_before = self.peer.requests.get();
        let mut quiet_since = Instant::now();
        loop {
            tokio::select! {
                biased;
                ended = self.connection.as_mut() => return ended.map(|()| None),
                // Checked whenever this task is polled, which happens at least at each idle check.
                () = poll_fn(|_| if self.shared.is_draining() { Poll::Ready(()) } else { Poll::Pending }) => {
                    return self.drain().await.map(|()| None);
                }
                () = must_close(self.listed.as_ref()) => {
                    self.listed = None;
                    // Otherwise a request came at this very moment.
                    if self.idle.is_idle(self.peer) { return Ok(None) }
                }
                () = tokio::time::sleep(self.idle.next_check().min(self.header_time)) => {}
            }
            match self.check(requests_before, &mut quiet_since, max_age) {
                After::Continue => {}
                After::CloseGracefully => return self.close().await.map(|()| None),
                After::Suspend => return self.suspend().await.map(Some),
                After::Close => return Ok(None),
            }
        }
    }

    fn check(&mut self, requests_before: u64, quiet_since: &mut Instant, max_age: Instant) -> After {
        if Instant::now() >= max_age {
            return After::CloseGracefully;
        }
        if !self.idle.was_idle(self.peer) {
            *quiet_since = Instant::now();
            self.listed = None;
            return After::Continue;
        }
        // Only after a request: otherwise a client could restart the time for its first head, or for one that it has
        // begun.
        if self.peer.requests.get() > requests_before && self.exchange.can_continue() {
            return After::Suspend;
        }
        if quiet_since.elapsed() >= self.header_time {
            tracing::debug!(client = %self.peer.address, "closed: no complete request header in time");
            return After::Close;
        }
        self.listed.get_or_insert_with(|| self.shared.idle.enter(*quiet_since));
        After::Continue
    }

    /// Ends the connection after the request in flight.
    async fn close(&mut self) -> hyper::Result<()> {
        self.connection.as_mut().graceful_shutdown();
        self.connection.as_mut().await
    }

    /// Ends the connection of a process that drains.
    async fn drain(&mut self) -> hyper::Result<()> {
        // A response that has begun cannot say any more that the connection closes, so nothing is to come after it. Any
        // other response can.
        let is_responding = self.peer.has_in_flight() && self.exchange.answered() == self.peer.requests.get();
        if !is_responding && let Some(ended) = self.last_request().await {
            return ended;
        }
        self.close().await
    }

    /// Drives the connection until it ends, which it does with its next response, or until no request comes.
    ///
    /// An earlier close could lose a request in flight: no response has told the client yet that the connection closes.
    async fn last_request(&mut self) -> Option<hyper::Result<()>> {
        // Begins a new interval.
        self.idle.was_idle(self.peer);
        loop {
            let interval = if self.peer.requests.get() == 0 { FIRST_REQUEST } else { NEXT_REQUEST };
            if let Ok(ended) = tokio::time::timeout(interval, self.connection.as_mut()).await {
                return Some(ended);
            }
            if self.idle.was_idle(self.peer) {
                return None;
            }
        }
    }

    /// Ends the hyper connection, but not the stream. Returns how many requests there were before that.
    async fn suspend(&mut self) -> hyper::Result<u64> {
        let requests = self.peer.requests.get();
        self.exchange.set_keep_open(true);
        self.connection.as_mut().graceful_shutdown();
        self.connection.as_mut().await?;
        Ok(requests)
    }

    /// Returns the stream, after the hyper connection has ended.
    fn into_stream(self, limits: Limits) -> Option<Box<ClientStream<S>>> {
        let parts = Pin::into_inner(self.connection).into_parts()?;
        let mut stream = parts.io.into_inner();
        stream.take_back(parts.read_buf, limits);
        Some(stream)
    }
}

/// Returns when a connection that is in the list of idle ones has to make room for another one.
async fn must_close(listed: Option<&Idle>) {
    match listed {
        Some(idle) => idle.must_close().await,
        None => std::future::pending().await,
    }
}

fn builder(settings: &ConnectionSettings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // `ActiveConnection::check` limits the time for a head. hyper would set a timer for each head.
        .header_read_timeout(None)
        .max_headers(settings.request_header_count)
        .max_header_size(settings.request_header_size);
    builder
}

//! One server and the connections to it. Each worker has a pool of its own, so no two cores share a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use hyper::client::conn::{http1, http2};
use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConfig;

use super::connect::Connector;
use super::failure::{Failure, UpstreamError};
use super::resolve::Addresses;
use super::retry::Counts;
use super::server_state::ServerState;
use super::settings::{EjectionSettings, Protocol, ServerSettings, UpstreamSettings};
use super::slots::{Slot, Slots};
use crate::protocols::http::body::Body;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::reject::Reason;

/// How many seconds a new connection is distrusted after the server has closed one under a request.
const DISTRUST: u32 = 60;

pub(super) struct Server {
    pub(super) connector: Connector,
    pub(super) protocol: Protocol,
    pub(super) state: Arc<ServerState>,
    pub(super) ejection: EjectionSettings,
    idle_timeout: Duration,
    max_connection_age: Duration,
    connect_timeout: Duration,
    /// Maximum idle connections of each worker.
    max_idle: usize,
    workers: Box<[WorkerPool]>,
    /// For how many more seconds a connection may break at once, however short it was idle.
    distrusted: AtomicU32,
    pub(super) name: String,
    is_tls: bool,
    /// Whether each connection names its client (`proxy_protocol`).
    pub(super) sends_proxy_header: bool,
}

/// On cache lines of its own: each request of its worker writes to it.
#[repr(align(128))]
struct WorkerPool {
    /// HTTP/1 connections without a request. The most recently used one is the last.
    idle: Mutex<Vec<Idle>>,
    http2: tokio::sync::Mutex<Http2Slot>,
    slots: Slots,
}

/// An HTTP/1 connection. Boxed once, because it moves with every request.
pub(super) struct Http1Connection {
    pub(super) sender: http1::SendRequest<Body>,
    opened: Instant,
    address: SocketAddr,
    /// `Addresses::removals` when `address` was last compared with the addresses of the server.
    removals: u64,
    /// With `proxy_protocol`, the client that the connection belongs to.
    client: Option<IpAddr>,
}

struct Idle {
    connection: Box<Http1Connection>,
    since: Instant,
}

/// The one HTTP/2 connection of a worker to a server.
#[derive(Default)]
struct Http2Slot {
    open: Option<Http2Connection>,
    /// When and why the last attempt to open it failed.
    failure: Option<(Instant, Failure)>,
}

struct Http2Connection {
    sender: http2::SendRequest<Body>,
    opened: Instant,
    /// When a request was last sent on it or was last seen in flight.
    used: Instant,
    address: SocketAddr,
}

impl Server {
    pub(super) fn new(
        server: &ServerSettings,
        settings: &UpstreamSettings,
        config: Option<&Arc<ClientConfig>>,
        state: Arc<ServerState>,
        addresses: Arc<Addresses>,
        workers: usize,
    ) -> Result<Self, UpstreamError> {
        let pool = |_| WorkerPool {
            idle: Mutex::default(),
            http2: tokio::sync::Mutex::default(),
            slots: Slots::new(settings.max_concurrent_requests, settings.reserve_percent),
        };
        Ok(Server {
            connector: Connector::new(server, settings, config, addresses)?,
            protocol: settings.protocol,
            state,
            ejection: settings.ejection.clone(),
            idle_timeout: settings.idle_timeout,
            max_connection_age: settings.max_connection_age,
            connect_timeout: settings.connect_timeout,
            max_idle: settings.max_concurrent_requests,
            workers: (0..workers).map(pool).collect(),
            distrusted: AtomicU32::new(0),
            name: server.authority(),
            is_tls: server.tls,
            sends_proxy_header: settings.proxy_protocol.is_some(),
        })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The number of free slots of this worker.
    pub(super) fn free_slots(&self, worker: usize) -> usize {
        self.workers[worker].slots.free()
    }

    /// Returns true if a request of this worker gets a slot without waiting.
    pub(super) fn has_free_slot(&self, worker: usize) -> bool {
        self.workers[worker].slots.has_free()
    }

    /// The number of requests in flight, of all workers.
    pub(super) fn in_flight(&self) -> usize {
        self.workers.iter().map(|pool| pool.slots.in_use()).sum()
    }

    /// Waits for a slot as long as for a connection.
    pub(super) async fn acquire_slot(&self, worker: usize, client: IpAddr) -> Result<Slot, Failure> {
        let slot = self.workers[worker].slots.acquire(client, self.connect_timeout).await;
        slot.ok_or_else(|| {
            let name = &self.name;
            let millis = self.connect_timeout.as_millis();
            Failure::Busy(format!("{name}: no free slot within {millis}ms: max_concurrent_requests are in flight"))
        })
    }

    /// Counts a request that failed at this server and is sent again, to it or to another server. Both metrics of
    /// retries count here, so that they agree. `reason`: why it failed.
    pub(super) fn count_retry(&self, counts: Counts<'_>, reason: Reason, request: &mut Request<Body>) {
        counts.metrics.upstream_retries.inc();
        counts.attempts.fail(reason, request.headers_mut());
        self.state.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the server closed a connection under a request. It may do so again soon.
    pub(super) fn expect_early_close(&self) {
        self.distrusted.store(DISTRUST, Ordering::Relaxed);
    }

    pub(super) fn expects_early_close(&self) -> bool {
        self.distrusted.load(Ordering::Relaxed) > 0
    }

    /// Opens an HTTP/1 connection. With `proxy_protocol`, it belongs to `client`.
    pub(super) async fn open_http1(
        &self,
        client: Option<IpAddr>,
        metrics: &WorkerMetrics,
    ) -> Result<Box<Http1Connection>, Failure> {
        let (sender, address) = self.connector.connect_http1(client).await?;
        metrics.upstream_connects.inc();
        let removals = self.connector.addresses.removals();
        Ok(Box::new(Http1Connection { sender, opened: Instant::now(), address, removals, client }))
    }

    /// The HTTP/1 connection that was used last, and for how long it was idle. The others become older and are closed.
    /// With `proxy_protocol`, only a connection of this client is taken.
    pub(super) fn take_idle(&self, worker: usize, client: Option<IpAddr>) -> Option<(Box<Http1Connection>, Duration)> {
        let mut idle = self.idle(worker);
        while let Some(at) = idle.iter().rposition(|idle| idle.connection.client == client) {
            let Idle { connection, since } = idle.remove(at);
            let now = Instant::now();
            let idle_for = now.saturating_duration_since(since);
            if idle_for > self.idle_timeout {
                // All before it have been idle for longer.
                idle.drain(..at);
                return None;
            }
            // A connection that is not ready is closed, or still sends an upload that got an early response.
            if connection.sender.is_ready() && !self.is_too_old(&connection, now) {
                return Some((connection, idle_for));
            }
        }
        None
    }

    /// Keeps an HTTP/1 connection for another request, unless it is closed, too old or to an address that was removed.
    pub(super) fn put_idle(&self, worker: usize, mut connection: Box<Http1Connection>, since: Instant) {
        let is_usable = !connection.sender.is_closed()
            && !self.is_too_old(&connection, since)
            && !self.has_removed_address(&mut connection);
        if !is_usable {
            return;
        }
        let mut idle = self.idle(worker);
        // The first has been idle for longest. Connections that are never needed end here.
        let is_expired = |idle: &Idle| since.duration_since(idle.since) > self.idle_timeout;
        if idle.first().is_some_and(is_expired) {
            let expired = idle.partition_point(is_expired);
            idle.drain(..expired);
        }
        // With `proxy_protocol`, each recent client leaves connections that no other client can use.
        if idle.len() >= self.max_idle {
            idle.remove(0);
        }
        idle.push(Idle { connection, since });
    }

    /// The HTTP/2 connection, when it was opened, and whether for this request: it opens one if there is none.
    pub(super) async fn http2_connection(
        &self,
        worker: usize,
        metrics: &WorkerMetrics,
    ) -> Result<(http2::SendRequest<Body>, Instant, bool), Failure> {
        let requested = Instant::now();
        // Held while dialling: requests that arrive meanwhile share the one connection, or its failure.
        let mut slot = self.workers[worker].http2.lock().await;
        // This request has a slot itself.
        let is_in_use = self.workers[worker].slots.in_use() > 1;
        if let Some(connection) = slot.open.as_mut()
            && !connection.sender.is_closed()
            && !self.is_expired(connection, is_in_use, requested)
        {
            connection.used = requested;
            return Ok((connection.sender.clone(), connection.opened, false));
        }
        if let Some((_, failure)) = slot.failure.as_ref().filter(|(when, _)| *when > requested) {
            return Err(failure.clone());
        }
        match self.connector.connect_http2().await {
            Ok((sender, address)) => {
                metrics.upstream_connects.inc();
                let opened = Instant::now();
                slot.open = Some(Http2Connection { sender: sender.clone(), opened, used: opened, address });
                Ok((sender, opened, true))
            }
            Err(failure) => {
                slot.failure = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Drops the HTTP/2 connection that was opened at this time, unless another request has replaced it already.
    pub(super) async fn drop_http2(&self, worker: usize, opened: Instant) {
        self.workers[worker].http2.lock().await.open.take_if(|connection| connection.opened == opened);
    }

    /// Closes connections that are unused, too old, or to an address that was removed. Requests in flight are not
    /// affected. To be called once a second.
    pub(super) fn close_expired(&self, now: Instant) {
        let _ = self.distrusted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seconds| seconds.checked_sub(1));
        for (worker, pool) in self.workers.iter().enumerate() {
            self.idle(worker).retain_mut(|idle| {
                now.saturating_duration_since(idle.since) <= self.idle_timeout
                    && !self.is_too_old(&idle.connection, now)
                    && !self.has_removed_address(&mut idle.connection)
                    && idle.connection.sender.is_ready()
            });
            // A request that holds the lock is about to use the connection or to open another: check again in a second.
            let Ok(mut slot) = pool.http2.try_lock() else { continue };
            let Some(connection) = &mut slot.open else { continue };
            if self.is_expired(connection, pool.slots.in_use() > 0, now)
                || !self.connector.addresses.known().contains(&connection.address)
            {
                slot.open = None;
            }
        }
    }

    /// Returns true if an HTTP/2 connection is too old, or was idle for so long that the backend may be closing it.
    fn is_expired(&self, connection: &mut Http2Connection, is_in_use: bool, now: Instant) -> bool {
        if is_in_use {
            connection.used = now;
        }
        now.saturating_duration_since(connection.opened) > self.max_connection_age
            || now.saturating_duration_since(connection.used) > self.idle_timeout
    }

    fn is_too_old(&self, connection: &Http1Connection, now: Instant) -> bool {
        now.saturating_duration_since(connection.opened) > self.max_connection_age
    }

    /// Returns true if the name does not resolve to the connection's address any more.
    fn has_removed_address(&self, connection: &mut Http1Connection) -> bool {
        let addresses = &self.connector.addresses;
        let removals = addresses.removals();
        if connection.removals == removals {
            return false;
        }
        connection.removals = removals;
        !addresses.known().contains(&connection.address)
    }

    fn idle(&self, worker: usize) -> MutexGuard<'_, Vec<Idle>> {
        self.workers[worker].idle.lock()
    }
}

//! One server and the connections to it. Each worker has its own, so no two cores meet here.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Request;
use hyper::client::conn::{http1, http2};
use rustls::ClientConfig;

use super::connect::Dialer;
use super::resolve::Addresses;
use super::retry::{Attempt, SendFailure, copy_if_repeatable};
use super::server_state::ServerState;
use super::slots::{Slot, Slots};
use super::{Failure, Protocol, ServerSettings, Settings, UpstreamResponse, outlier};
use crate::protocols::http::body::Body;
use crate::telemetry::metrics::WorkerMetrics;

/// A connection that lay idle longer than this may be just being closed by the other side. Only then is it worth keeping
/// a copy of the request's head, to send it again if that happens.
const FRESH: Duration = Duration::from_millis(500);

/// A server that closed a fresh one under a request is expected to do so again for so many seconds.
const WARY: u32 = 60;

pub(super) struct Server {
    pub(super) dialer: Dialer,
    pub(super) protocol: Protocol,
    pub(super) standing: Arc<ServerState>,
    pub(super) ejection: outlier::Settings,
    idle_timeout: Duration,
    max_connection_age: Duration,
    connect_timeout: Duration,
    connections: usize,
    workers: Box<[WorkerPool]>,
    /// Seconds for which fresh connections are not trusted either.
    wary: AtomicU32,
    pub(super) name: String,
    is_tls: bool,
    /// `proxy_protocol`: each connection says whose requests it carries.
    announces: bool,
}

struct WorkerPool {
    /// HTTP/1 connections without a request, the last used one on top.
    idle: Mutex<Vec<Idle>>,
    shared: tokio::sync::Mutex<Shared>,
    /// Requests that may be under way.
    slots: Slots,
}

/// An HTTP/1 connection. Boxed once: it passes from hand to hand with every request.
struct Http1Connection {
    sender: http1::SendRequest<Body>,
    born: Instant,
    /// Where it leads, and which state of the server's addresses it was last compared with.
    address: SocketAddr,
    generation: u64,
    /// With `proxy_protocol`: whose requests it carries.
    client: Option<IpAddr>,
}

struct Idle {
    channel: Box<Http1Connection>,
    since: Instant,
}

/// The one HTTP/2 connection.
#[derive(Default)]
struct Shared {
    open: Option<Http2Connection>,
    /// Why it could not be opened, the last time.
    failure: Option<(Instant, Failure)>,
}

struct Http2Connection {
    sender: http2::SendRequest<Body>,
    born: Instant,
    /// When a request last went over it, or was seen under way.
    used: Instant,
    address: SocketAddr,
}

/// A connection in use by one request. Given back at the end of the answer's body; closed if dropped before.
pub struct Lease {
    channel: Option<Box<Http1Connection>>,
    server: Arc<Server>,
    worker: usize,
    _place: Slot,
    /// How often its server had been left out when it was chosen. `None`: there is no other, and it is never left out.
    pub(super) ejections: Option<u64>,
}

impl Lease {
    /// The answer broke off, and the server is to blame.
    pub fn broke_off(&self, why: &str) {
        if let Some(ejections) = self.ejections {
            self.server.standing.broke_off(&self.server.ejection, ejections, why, Instant::now());
        }
    }

    /// The answer is complete: another request may have the connection.
    pub fn give_back(mut self) {
        self.server.standing.answered_whole();
        let Some(mut channel) = self.channel.take().filter(|channel| !channel.sender.is_closed()) else { return };
        let since = Instant::now();
        if self.server.is_too_old(&channel, since) || self.server.leads_nowhere(&mut channel) {
            return;
        }
        let mut idle = self.server.idle(self.worker);
        // The first has lain there longest. If nobody needed it all that time, nobody will.
        let is_old = |idle: &Idle| since.duration_since(idle.since) > self.server.idle_timeout;
        if idle.first().is_some_and(is_old) {
            let old = idle.partition_point(is_old);
            idle.drain(..old);
        }
        // Those that clients have to themselves add up, one for each client that was here lately.
        if idle.len() >= self.server.connections {
            idle.remove(0);
        }
        idle.push(Idle { channel, since });
    }
}

impl Server {
    pub(super) fn new(
        server: &ServerSettings,
        settings: &Settings,
        config: Option<&Arc<ClientConfig>>,
        (standing, addresses): (Arc<ServerState>, Arc<Addresses>),
        workers: usize,
    ) -> Result<Self, String> {
        let pool = |_| WorkerPool {
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            slots: Slots::new(settings.max_concurrent_requests, settings.reserve_percent),
        };
        Ok(Server {
            dialer: Dialer::new(server, settings, config, addresses)?,
            protocol: settings.protocol,
            standing,
            ejection: settings.ejection.clone(),
            idle_timeout: settings.idle_timeout,
            max_connection_age: settings.max_connection_age,
            connect_timeout: settings.connect_timeout,
            connections: settings.max_concurrent_requests,
            workers: (0..workers).map(pool).collect(),
            wary: AtomicU32::new(0),
            name: server.authority(),
            is_tls: server.tls,
            announces: settings.proxy_protocol.is_some(),
        })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Places that are free to this worker.
    pub(super) fn free(&self, worker: usize) -> usize {
        self.workers[worker].slots.free()
    }

    /// Would a request of this worker have its place at once?
    pub(super) fn has_room(&self, worker: usize) -> bool {
        self.workers[worker].slots.has_room()
    }

    /// Requests under way, of all workers.
    pub(super) fn under_way(&self) -> usize {
        self.workers.iter().map(|pool| pool.slots.taken()).sum()
    }

    /// Takes the request when it is sent. If nobody took it, or nobody minds getting it twice, it is there again afterwards.
    pub(super) async fn send(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        client: IpAddr,
        request: &mut Request<Body>,
        attempt: Attempt,
    ) -> Result<UpstreamResponse, SendFailure> {
        let place = self.place(worker, client).await.map_err(SendFailure::unsent)?;
        let announced = self.announces.then(|| client.to_canonical());
        match self.protocol {
            Protocol::Http1 => self.send_http1(worker, metrics, announced, request, attempt, place).await,
            // Boxed: it is three times as large, and every request's future as large as the largest step in it.
            Protocol::Http2 => Box::pin(self.send_http2(worker, metrics, request, attempt, place)).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        client: Option<IpAddr>,
        request: &mut Request<Body>,
        attempt: Attempt,
        place: Slot,
    ) -> Result<UpstreamResponse, SendFailure> {
        // What is sent a second time is not sent over what may be just being closed.
        let may_be_pooled = attempt != Attempt::Second;
        while let Some((mut channel, age)) = may_be_pooled.then(|| self.take_idle(worker, client)).flatten() {
            let is_worth_a_copy = attempt == Attempt::OfSeveral || age > FRESH || self.wary.load(Ordering::Relaxed) > 0;
            let copy = is_worth_a_copy.then(|| copy_if_repeatable(request)).flatten();
            let mut error = match channel.sender.try_send_request(mem::take(request)).await {
                Ok(response) => return Ok((response, self.lease(worker, Some(channel), place))),
                Err(error) => error,
            };
            // The connection was closed under us: before the request got out, or without an answer to a request that may
            // be repeated.
            *request = match error.take_message() {
                Some(unsent) => unsent,
                None => {
                    self.wary.store(WARY, Ordering::Relaxed);
                    return Err(SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt));
                }
            };
            metrics.upstream_retries.inc();
        }
        let (sender, address) = self.dialer.dial_http1(client).await.map_err(SendFailure::unsent)?;
        metrics.upstream_connects.inc();
        let generation = self.dialer.addresses.generation();
        let mut channel = Box::new(Http1Connection { sender, born: Instant::now(), address, generation, client });
        let copy = (attempt == Attempt::OfSeveral).then(|| copy_if_repeatable(request)).flatten();
        match channel.sender.try_send_request(mem::take(request)).await {
            Ok(response) => Ok((response, self.lease(worker, Some(channel), place))),
            Err(error) => Err(SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt)),
        }
    }

    async fn send_http2(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        request: &mut Request<Body>,
        attempt: Attempt,
        place: Slot,
    ) -> Result<UpstreamResponse, SendFailure> {
        let mut is_first = true;
        loop {
            let (mut sender, born) = self.shared_connection(worker, metrics).await.map_err(SendFailure::unsent)?;
            let copy = (attempt != Attempt::Second).then(|| copy_if_repeatable(request)).flatten();
            match sender.try_send_request(mem::take(request)).await {
                Ok(response) => return Ok((response, self.lease(worker, None, place))),
                Err(mut error) => match error.take_message().filter(|_| is_first) {
                    // The connection was closed under us before the request got out.
                    Some(unsent) => {
                        metrics.upstream_retries.inc();
                        // Unless somebody has opened another meanwhile.
                        self.workers[worker].shared.lock().await.open.take_if(|joint| joint.born == born);
                        (*request, is_first) = (unsent, false);
                    }
                    None => return Err(SendFailure::sent(error.into_error(), copy, request, self.protocol, attempt)),
                },
            }
        }
    }

    /// The HTTP/2 connection, opened if there is none.
    async fn shared_connection(
        &self,
        worker: usize,
        metrics: &WorkerMetrics,
    ) -> Result<(http2::SendRequest<Body>, Instant), Failure> {
        let asked = Instant::now();
        // Held while dialling: requests that arrive meanwhile share the one connection, or its failure.
        let mut shared = self.workers[worker].shared.lock().await;
        // This request has a place already.
        let is_in_use = self.workers[worker].slots.taken() > 1;
        if let Some(joint) = shared.open.as_mut()
            && !joint.sender.is_closed()
            && !self.is_spent(joint, is_in_use, asked)
        {
            joint.used = asked;
            return Ok((joint.sender.clone(), joint.born));
        }
        if let Some((_, failure)) = shared.failure.as_ref().filter(|(when, _)| *when > asked) {
            return Err(failure.clone());
        }
        match self.dialer.dial_http2().await {
            Ok((sender, address)) => {
                metrics.upstream_connects.inc();
                let born = Instant::now();
                shared.open = Some(Http2Connection { sender: sender.clone(), born, used: born, address });
                Ok((sender, born))
            }
            Err(failure) => {
                shared.failure = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Has it served its time, or lain idle for so long that the backend may be just closing it?
    fn is_spent(&self, joint: &mut Http2Connection, is_in_use: bool, now: Instant) -> bool {
        if is_in_use {
            joint.used = now;
        }
        now.saturating_duration_since(joint.born) > self.max_connection_age
            || now.saturating_duration_since(joint.used) > self.idle_timeout
    }

    /// Waits for a place among the requests under way, as long as it would for a connection.
    async fn place(&self, worker: usize, client: IpAddr) -> Result<Slot, Failure> {
        let place = self.workers[worker].slots.take(client, self.connect_timeout).await;
        place.ok_or_else(|| Failure::Busy(format!("all connections to {} are in use", self.name)))
    }

    /// The idle connection that was used last, and for how long it lay idle. Last in, first out: the others grow old and
    /// are closed. Without `proxy_protocol` every one is nobody's, and the last one fits.
    fn take_idle(&self, worker: usize, client: Option<IpAddr>) -> Option<(Box<Http1Connection>, Duration)> {
        let mut idle = self.idle(worker);
        while let Some(at) = idle.iter().rposition(|idle| idle.channel.client == client) {
            let Idle { channel, since } = idle.remove(at);
            let now = Instant::now();
            let age = now.saturating_duration_since(since);
            if age > self.idle_timeout {
                // Everything below it is older still.
                idle.drain(..at);
                return None;
            }
            // One that is not ready is closed, or still busy with an upload that was answered before its end.
            if channel.sender.is_ready() && !self.is_too_old(&channel, now) {
                return Some((channel, age));
            }
        }
        None
    }

    /// Once a second. Closes what nobody needs any more, what has served its time, and what leads to an address that has
    /// vanished. Requests under way end as they began.
    pub(super) fn retire(&self, now: Instant) {
        let _ = self.wary.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        for (worker, pool) in self.workers.iter().enumerate() {
            self.idle(worker).retain_mut(|idle| {
                now.saturating_duration_since(idle.since) <= self.idle_timeout
                    && !self.is_too_old(&idle.channel, now)
                    && !self.leads_nowhere(&mut idle.channel)
                    && idle.channel.sender.is_ready()
            });
            // Whoever holds the lock is about to use it, or to open another one: then the next time.
            let Ok(mut shared) = pool.shared.try_lock() else { continue };
            let Some(joint) = &mut shared.open else { continue };
            if self.is_spent(joint, pool.slots.taken() > 0, now)
                || !self.dialer.addresses.known().contains(&joint.address)
            {
                shared.open = None;
            }
        }
    }

    fn is_too_old(&self, channel: &Http1Connection, now: Instant) -> bool {
        now.saturating_duration_since(channel.born) > self.max_connection_age
    }

    fn leads_nowhere(&self, channel: &mut Http1Connection) -> bool {
        let addresses = &self.dialer.addresses;
        let generation = addresses.generation();
        if channel.generation == generation {
            return false;
        }
        channel.generation = generation;
        !addresses.known().contains(&channel.address)
    }

    fn idle(&self, worker: usize) -> MutexGuard<'_, Vec<Idle>> {
        self.workers[worker].idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(self: &Arc<Self>, worker: usize, channel: Option<Box<Http1Connection>>, place: Slot) -> Lease {
        Lease { channel, server: self.clone(), worker, _place: place, ejections: None }
    }
}

//! One server and the connections to it. Each worker has its own, so no two cores meet here.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body as _;
use hyper::client::conn::{http1, http2};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::Dialer;
use super::{Answer, Failure, Protocol, ServerSettings, Settings};
use crate::body::Body;
use crate::metrics::WorkerMetrics;

/// A connection that lay idle longer than this may be just being closed by the other side. Only then is it worth keeping
/// a copy of the request's head, to send it again if that happens.
const FRESH: Duration = Duration::from_millis(500);

pub struct Server {
    dialer: Dialer,
    protocol: Protocol,
    idle_timeout: Duration,
    connect_timeout: Duration,
    connections: usize,
    workers: Box<[WorkerPool]>,
    name: String,
}

struct WorkerPool {
    /// HTTP/1 connections without a request, the last used one on top.
    idle: Mutex<Vec<Idle>>,
    shared: tokio::sync::Mutex<Shared>,
    /// Requests that may be under way.
    places: Arc<Semaphore>,
}

struct Idle {
    sender: http1::SendRequest<Body>,
    since: Instant,
    /// With `proxy_protocol`: whose requests it carries.
    client: Option<IpAddr>,
}

/// The one HTTP/2 connection.
#[derive(Default)]
struct Shared {
    sender: Option<http2::SendRequest<Body>>,
    /// Why it could not be opened, the last time.
    failure: Option<(Instant, Failure)>,
}

/// A connection in use by one request. Given back at the end of the answer's body; closed if dropped before.
pub struct Lease {
    sender: Option<http1::SendRequest<Body>>,
    client: Option<IpAddr>,
    server: Arc<Server>,
    worker: usize,
    _place: OwnedSemaphorePermit,
}

impl Lease {
    /// The answer is complete: another request may have the connection.
    pub fn give_back(mut self) {
        let Some(sender) = self.sender.take().filter(|sender| !sender.is_closed()) else { return };
        let since = Instant::now();
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
        idle.push(Idle { sender, since, client: self.client });
    }
}

/// A failure, and the request if it was certainly never sent.
type Unsent = (Failure, Option<Box<Request<Body>>>);

impl Server {
    pub(super) fn new(server: &ServerSettings, settings: &Settings, workers: usize) -> Result<Self, String> {
        let pool = |_| WorkerPool {
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            places: Arc::new(Semaphore::new(settings.connections)),
        };
        Ok(Server {
            dialer: Dialer::new(server, settings)?,
            protocol: settings.protocol,
            idle_timeout: settings.idle_timeout,
            connect_timeout: settings.connect_timeout,
            connections: settings.connections,
            workers: (0..workers).map(pool).collect(),
            name: server.authority(),
        })
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        client: Option<IpAddr>,
        request: Request<Body>,
    ) -> Result<Answer, Unsent> {
        let place = match self.place(worker).await {
            Ok(place) => place,
            Err(failure) => return Err((failure, Some(Box::new(request)))),
        };
        match self.protocol {
            Protocol::Http1 => self.send_http1(worker, metrics, client, request, place).await,
            Protocol::Http2 => self.send_http2(worker, metrics, request, place).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        client: Option<IpAddr>,
        mut request: Request<Body>,
        place: OwnedSemaphorePermit,
    ) -> Result<Answer, Unsent> {
        while let Some((mut sender, age)) = self.take_idle(worker, client) {
            let copy = (age > FRESH).then(|| copy_if_repeatable(&request)).flatten();
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, self.lease(worker, Some(sender), client, place))),
                Err(error) => error,
            };
            let unsent = error.take_message();
            let is_certain = unsent.is_some();
            // The connection was closed under us: before the request got out, or without an answer to a request that may
            // be repeated, once.
            request = match unsent.or(copy.filter(|_| broke_off(error.error()))) {
                Some(request) => request,
                None => return Err((Failure::broken(error.into_error()), None)),
            };
            metrics.upstream_retries.one();
            if !is_certain {
                break;
            }
        }
        let mut sender = match self.dialer.dial_http1(client).await {
            Ok(sender) => sender,
            Err(failure) => return Err((failure, Some(Box::new(request)))),
        };
        metrics.upstream_connects.one();
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, self.lease(worker, Some(sender), client, place))),
            Err(error) => Err((Failure::broken(error.into_error()), None)),
        }
    }

    async fn send_http2(
        self: &Arc<Self>,
        worker: usize,
        metrics: &WorkerMetrics,
        mut request: Request<Body>,
        place: OwnedSemaphorePermit,
    ) -> Result<Answer, Unsent> {
        let mut is_first = true;
        loop {
            let mut sender = match self.shared_connection(worker, metrics).await {
                Ok(sender) => sender,
                Err(failure) => return Err((failure, Some(Box::new(request)))),
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, self.lease(worker, None, None, place))),
                Err(mut error) => match error.take_message().filter(|_| is_first) {
                    // The connection was closed under us before the request got out.
                    Some(unsent) => {
                        metrics.upstream_retries.one();
                        self.workers[worker].shared.lock().await.sender = None;
                        (request, is_first) = (unsent, false);
                    }
                    None => return Err((Failure::broken(error.into_error()), None)),
                },
            }
        }
    }

    /// The HTTP/2 connection, opened if there is none.
    async fn shared_connection(
        &self,
        worker: usize,
        metrics: &WorkerMetrics,
    ) -> Result<http2::SendRequest<Body>, Failure> {
        let asked = Instant::now();
        // Held while dialling: requests that arrive meanwhile share the one connection, or its failure.
        let mut shared = self.workers[worker].shared.lock().await;
        if let Some(sender) = shared.sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        if let Some((_, failure)) = shared.failure.as_ref().filter(|(when, _)| *when > asked) {
            return Err(failure.clone());
        }
        match self.dialer.dial_http2().await {
            Ok(sender) => {
                metrics.upstream_connects.one();
                Ok(shared.sender.insert(sender).clone())
            }
            Err(failure) => {
                shared.failure = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Waits for a place among the requests under way, as long as it would for a connection.
    async fn place(&self, worker: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let places = &self.workers[worker].places;
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Ok(place);
        }
        match tokio::time::timeout(self.connect_timeout, places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Failure::Busy(format!("all connections to {} are in use", self.name))),
        }
    }

    /// The idle connection that was used last, and for how long it lay idle. Last in, first out: the others grow old and
    /// are closed when they are found. Without `proxy_protocol` every one is nobody's, and the last one fits.
    fn take_idle(&self, worker: usize, client: Option<IpAddr>) -> Option<(http1::SendRequest<Body>, Duration)> {
        let mut idle = self.idle(worker);
        while let Some(at) = idle.iter().rposition(|idle| idle.client == client) {
            let Idle { sender, since, .. } = idle.remove(at);
            let age = since.elapsed();
            if age > self.idle_timeout {
                // Everything below it is older still.
                idle.drain(..at);
                return None;
            }
            // One that is not ready is closed, or still busy with an upload that was answered before its end.
            if sender.is_ready() {
                return Some((sender, age));
            }
        }
        None
    }

    fn idle(&self, worker: usize) -> MutexGuard<'_, Vec<Idle>> {
        self.workers[worker].idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(
        self: &Arc<Self>,
        worker: usize,
        sender: Option<http1::SendRequest<Body>>,
        client: Option<IpAddr>,
        place: OwnedSemaphorePermit,
    ) -> Lease {
        Lease { sender, client, server: self.clone(), worker, _place: place }
    }
}

/// Did the connection end before there was an answer?
fn broke_off(error: &hyper::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || (is_io && !error.is_parse())
}

/// A second copy of a request that nobody minds getting twice: idempotent, without a body, and no upgrade.
fn copy_if_repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !safe || !request.body().is_end_stream() || request.headers().contains_key(http::header::UPGRADE) {
        return None;
    }
    let (method, uri): (Method, Uri) = (request.method().clone(), request.uri().clone());
    let (version, headers): (Version, HeaderMap) = (request.version(), request.headers().clone());
    let mut copy = Request::new(Body::empty());
    (*copy.method_mut(), *copy.uri_mut(), *copy.version_mut(), *copy.headers_mut()) = (method, uri, version, headers);
    Some(copy)
}

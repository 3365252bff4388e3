//! The backends: groups of servers, and the worker's own pools of connections to them.
//!
//! [`Upstream::send`] picks a server (`balance`), takes a pooled connection or opens one (`pool`), and sends. A request is
//! sent a second time only where nothing can be done twice (`repeat`), under a `budget`. What goes on beside requests is
//! in `upkeep`.

mod balance;
mod connect;
pub mod health;
mod io;
mod maintenance;
pub mod outlier;
mod pool;
mod resolve;
mod retry;
mod retry_budget;
mod server_state;
mod settings;
mod slots;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;

use crate::protocols::http::body::Body;
use crate::telemetry::metrics::{Count, WorkerMetrics};
use crate::types::reject::{Reason, Reject, with_causes};

use balance::Set;
use pool::Server;
use resolve::Addresses;
use retry::{Attempt, RetryDecision, SendFailure};
use retry_budget::Budget;
use server_state::ServerState;

pub use maintenance::look_after;
pub use pool::Lease;
pub use settings::{Balance, Key, MOST_SERVERS, Protocol, ServerSettings, Settings, TlsSettings};

/// One group of servers.
pub struct Upstream {
    pub name: Arc<str>,
    pub settings: Settings,
    /// For requests that do not keep the client's Host: the first server's.
    pub host: HeaderValue,
    pub scheme: Scheme,
    servers: Vec<Arc<Server>>,
    /// Hashes of what tells the servers apart.
    names: Vec<u64>,
    turns: Box<[Turn]>,
    budget: Budget,
}

/// The requests of one worker so far, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Turn(Count);

/// An answer, and the connection it comes over, which is lent until the body's end.
pub type UpstreamResponse = (Response<Incoming>, Lease);

/// Which server a request is at, and since which of its ejections: the index in the low byte, their number above. For whoever
/// loses patience while it waits for the answer.
#[derive(Default)]
pub struct CurrentServer(AtomicU64);

impl CurrentServer {
    fn set(&self, at: usize, ejections: u64) {
        self.0.store(ejections << 8 | at as u64, Ordering::Relaxed);
    }

    fn get(&self) -> (usize, u64) {
        let word = self.0.load(Ordering::Relaxed);
        ((word & 0xff) as usize, word >> 8)
    }
}

impl Upstream {
    /// For so many workers. What is known about the servers of the same name is taken over from `before`. Fails if a file
    /// for TLS cannot be used.
    pub fn new(settings: Settings, workers: usize, before: Option<&Upstream>) -> Result<Self, String> {
        let first = settings.servers.first().ok_or("an upstream needs a server")?;
        let scheme = if first.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let host = first.authority();
        let host = HeaderValue::from_str(&host).map_err(|_| format!("{host:?} is not a host"))?;
        let config = connect::client_config(&settings)?;
        let servers = settings.servers.iter().map(|server| {
            let known = known_before(before, &settings, server);
            Server::new(server, &settings, config.as_ref(), known, workers).map(Arc::new)
        });
        Ok(Upstream {
            host,
            scheme,
            name: settings.name.as_str().into(),
            servers: servers.collect::<Result<_, String>>()?,
            names: settings.servers.iter().map(|server| balance::hash(server.url().as_bytes())).collect(),
            turns: (0..workers).map(|_| Turn::default()).collect(),
            budget: Budget::new(settings.retry_budget_percent),
            settings,
        })
    }

    /// What decides where this request goes, if it is a key. `headers` as the upstream will see them.
    pub fn key(&self, headers: &HeaderMap, subject: Option<&str>) -> Option<u64> {
        match &self.settings.balance {
            Balance::RoundRobin | Balance::LeastRequests => None,
            Balance::Hash(Key::Subject) => subject.filter(|subject| !subject.is_empty()).map(str::as_bytes),
            Balance::Hash(Key::Header(name)) => headers.get(name).map(HeaderValue::as_bytes),
        }
        .map(balance::hash)
    }

    /// Sends a client's request to one server; if it could not be connected to, or broke off under a request that may be
    /// repeated, to another. The request is taken from where it stands when it is sent, and not before: were it handed down by
    /// value, it would lie in the future of every function on the way, twice in each.
    pub async fn send(
        &self,
        worker: usize,
        metrics: &WorkerMetrics,
        client: IpAddr,
        key: Option<u64>,
        whereabouts: &CurrentServer,
        request: &mut Request<Body>,
    ) -> Result<UpstreamResponse, Failure> {
        let turn = &self.turns[worker].0;
        turn.inc();
        // Workers begin at different servers.
        let ticket = turn.get().wrapping_add(worker as u64);
        let mut attempt = if self.servers.len() == 1 { Attempt::OfOne } else { Attempt::OfSeveral };
        let mut tried = 0;
        let mut at = 0;
        loop {
            at = self.pick(worker, ticket, key, tried).unwrap_or(at);
            tried |= 1 << at;
            let server = &self.servers[at];
            let ejections = server.standing.ejections();
            whereabouts.set(at, ejections);
            let SendFailure { failure, again } = match server.send(worker, metrics, client, request, attempt).await {
                Ok((response, mut lease)) => {
                    if self.servers.len() > 1 {
                        server.standing.answered();
                        lease.ejections = Some(ejections);
                    }
                    return Ok((response, lease));
                }
                Err(unanswered) => unanswered,
            };
            let has_others = (tried.count_ones() as usize) < self.servers.len();
            match again {
                Some(RetryDecision::Unsent) if has_others => {}
                Some(RetryDecision::Repeatable) if self.may_repeat(has_others) => {
                    metrics.upstream_retries.inc();
                    attempt = Attempt::Second;
                }
                _ => return Err(failure),
            }
            server.standing.retries.fetch_add(1, Ordering::Relaxed);
            if !matches!(failure, Failure::Busy(_)) {
                self.count_failure(whereabouts, &failure.to_string());
            }
        }
    }

    /// The only server may have it once more, over a new connection.
    fn may_repeat(&self, has_others: bool) -> bool {
        (has_others || self.servers.len() == 1) && self.budget.spend(self.requests())
    }

    /// `None` if all were tried. A server without room may hang with all that it was given: another one is picked, but for a key,
    /// which leads to its own.
    fn pick(&self, worker: usize, ticket: u64, key: Option<u64>, tried: Set) -> Option<usize> {
        if self.servers.len() == 1 {
            return Some(0);
        }
        let seed = key.unwrap_or_else(|| balance::mix(ticket));
        let open = balance::open(&self.names, tried, seed, |at| self.servers[at].standing.share());
        if open == 0 {
            return None;
        }
        if let (Balance::Hash(_), Some(key)) = (&self.settings.balance, key) {
            return Some(balance::by_key(open, key, &self.names));
        }
        let among = |some| match self.settings.balance {
            Balance::LeastRequests => balance::less_busy(some, ticket, |at| self.servers[at].free(worker)),
            Balance::RoundRobin | Balance::Hash(_) => balance::in_turn(some, ticket),
        };
        let picked = among(open);
        if self.servers[picked].has_room(worker) {
            return Some(picked);
        }
        Some(self.with_room(worker, open, tried).map_or(picked, among))
    }

    /// Those that a request need not wait at. Whoever returns serves more than its share only if nobody else is among them.
    fn with_room(&self, worker: usize, open: Set, tried: Set) -> Option<Set> {
        let has_room = |at: usize| self.servers[at].has_room(worker);
        let is_up = |at: usize| self.servers[at].standing.share() > 0;
        let of_open = balance::only(open, self.servers.len(), has_room);
        let of_all = || balance::only(!tried, self.servers.len(), |at| is_up(at) && has_room(at));
        let with_room = if of_open == 0 { of_all() } else { of_open };
        (with_room != 0).then_some(with_room)
    }

    /// The request that is there failed for good, and neither the client nor the gateway is to blame.
    pub fn failed(&self, whereabouts: &CurrentServer, failure: &Reject) {
        let counts =
            [Reason::UpstreamConnect, Reason::UpstreamConnectTimeout, Reason::UpstreamBroken, Reason::UpstreamTimeout];
        if counts.contains(&failure.reason) {
            self.count_failure(whereabouts, &failure.detail);
        }
    }

    /// There is nobody to take over from an only server.
    fn count_failure(&self, whereabouts: &CurrentServer, why: &str) {
        let (at, ejections) = whereabouts.get();
        if self.servers.len() > 1 {
            self.servers[at].standing.failed(&self.settings.ejection, ejections, why, Instant::now());
        }
    }

    /// So far.
    fn requests(&self) -> u64 {
        self.turns.iter().map(|turn| turn.0.get()).sum()
    }

    /// How its servers stand.
    pub fn report(&self) -> Vec<Report> {
        let report = |server: &Arc<Server>| {
            let standing = &server.standing;
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            Report {
                server: server.name.clone(),
                state: standing.in_words(),
                share: f64::from(standing.share()) / f64::from(balance::FULL),
                under_way: server.under_way(),
                ejections: standing.ejections(),
                retries: read(&standing.retries),
                failed_checks: read(&standing.failed_checks),
                addresses: server.dialer.addresses.known().to_vec(),
            }
        };
        self.servers.iter().map(report).collect()
    }
}

/// What is known about a server whatever the configuration says of its upstream: by its name there and its URL.
fn known_before(
    before: Option<&Upstream>,
    settings: &Settings,
    server: &ServerSettings,
) -> (Arc<ServerState>, Arc<Addresses>) {
    let same = before.and_then(|before| {
        let place = before.settings.servers.iter().position(|other| other == server)?;
        before.servers.get(place)
    });
    match same {
        Some(same) => (same.standing.clone(), same.dialer.addresses.clone()),
        None => {
            let standing = ServerState::new(&settings.name, server.authority());
            (Arc::new(standing), Arc::new(Addresses::new(&server.host, server.port)))
        }
    }
}

/// How one server stands, for operators.
pub struct Report {
    pub server: String,
    /// `in`, `returning`, `ejected` or `unhealthy`.
    pub state: &'static str,
    /// Its part of the requests that it would get: 0 to 1.
    pub share: f64,
    /// Requests.
    pub under_way: usize,
    pub ejections: u64,
    pub retries: u64,
    pub failed_checks: u64,
    pub addresses: Vec<SocketAddr>,
}

/// Why an upstream gave no answer.
#[derive(Clone, Debug)]
pub enum Failure {
    Connect(String),
    ConnectTimeout(String),
    /// `max_concurrent_requests` are in use, and none became free in time.
    Busy(String),
    /// It closed, reset, or spoke something else than HTTP.
    Broken(String),
}

impl Failure {
    fn broken(error: hyper::Error) -> Self {
        Failure::Broken(with_causes(&error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(text) | Failure::ConnectTimeout(text) => f.write_str(text),
            Failure::Busy(text) | Failure::Broken(text) => f.write_str(text),
        }
    }
}

impl From<Failure> for Reject {
    fn from(failure: Failure) -> Reject {
        let reason = match &failure {
            Failure::Connect(_) => Reason::UpstreamConnect,
            Failure::ConnectTimeout(_) => Reason::UpstreamConnectTimeout,
            Failure::Busy(_) => Reason::UpstreamBusy,
            Failure::Broken(_) => Reason::UpstreamBroken,
        };
        Reject::new(reason, failure.to_string())
    }
}

#[cfg(test)]
mod tests;

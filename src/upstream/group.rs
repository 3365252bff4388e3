//! A group of servers: which of them gets a request, and what follows from a failure.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request};

use super::balance::{self, Set};
use super::connect;
use super::failure::{Failure, UpstreamError};
use super::pool::Server;
use super::pooled_connection::PooledConnection;
use super::report::Report;
use super::resolve::Addresses;
use super::retry::{Attempt, Counts, MAX_CLOSINGS, RetryReason, SendFailure};
use super::retry_budget::RetryBudget;
use super::send::UpstreamResponse;
use super::server_state::ServerState;
use super::settings::{Balance, Key, ServerSettings, UpstreamSettings};
use super::weights::Weights;
use crate::protocols::http::body::Body;
use crate::telemetry::access_log::UpstreamNames;
use crate::telemetry::metrics::{Count, Histogram};
use crate::types::per_worker::{PaddedArc, PerWorker};
use crate::types::reject::{Reason, Reject};

/// One group of servers.
pub struct Upstream {
    pub name: Arc<str>,
    /// For the record of each request.
    pub names: PerWorker<UpstreamNames>,
    /// Of each worker: from when the gateway began to send a request to the head of the response.
    pub response_times: Arc<[Histogram]>,
    pub settings: UpstreamSettings,
    /// `Host` of the first server, for requests that do not keep the client's.
    pub host: HeaderValue,
    pub scheme: Scheme,
    pub(super) servers: Vec<PerWorker<PaddedArc<Server>>>,
    /// A hash of each server's URL.
    server_hashes: Vec<u64>,
    /// `None`: all servers have the same weight.
    weights: Option<Weights>,
    requests: Box<[WorkerRequests]>,
    pub(super) retry_budget: RetryBudget,
}

/// The number of requests of one worker, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct WorkerRequests(Count);

/// Which server a request is at, and how often that one had been ejected when it was chosen: the server's index in the
/// low byte, the number above. The gateway needs both if it stops waiting for the response.
#[derive(Default)]
pub struct CurrentServer(AtomicU64);

/// Of [`CurrentServer`]. No server is ejected so often.
const NO_SERVER: u64 = u64::MAX;

impl CurrentServer {
    pub(super) fn set(&self, at: usize, ejections: u64) {
        self.0.store(ejections << 8 | at as u64, Ordering::Relaxed);
    }

    /// No server has caused the failure.
    fn forget(&self) {
        self.0.store(NO_SERVER, Ordering::Relaxed);
    }

    fn get(&self) -> Option<(usize, u64)> {
        let word = self.0.load(Ordering::Relaxed);
        (word != NO_SERVER).then_some(((word & 0xff) as usize, word >> 8))
    }
}

impl Upstream {
    /// `before`: the upstream of the same name in the current configuration. Servers in both keep their state. Fails if
    /// a TLS file is invalid.
    pub fn new(settings: UpstreamSettings, workers: usize, before: Option<&Upstream>) -> Result<Self, UpstreamError> {
        let first = settings.servers.first().ok_or(UpstreamError::NoServers)?;
        let scheme = if first.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let host = first.authority();
        let host = HeaderValue::from_str(&host).map_err(|_| UpstreamError::InvalidHost(host))?;
        let config = connect::client_config(&settings)?;
        let name: Arc<str> = settings.name.as_str().into();
        let servers = settings.servers.iter().map(ServerSettings::authority).collect();
        let names = UpstreamNames { name: name.clone(), scheme: scheme.clone(), servers };
        let servers = settings.servers.iter().map(|server| {
            let (state, addresses) = state_before(before, &settings, server);
            let server = Server::new(server, &settings, config.as_ref(), state, addresses, workers)?;
            Ok(PerWorker::new(PaddedArc::new(server), workers))
        });
        Ok(Upstream {
            host,
            names: PerWorker::new(names, workers),
            scheme,
            name,
            response_times: response_times(before, workers),
            servers: servers.collect::<Result<_, UpstreamError>>()?,
            server_hashes: settings.servers.iter().map(|server| balance::hash(server.url().as_bytes())).collect(),
            weights: Weights::new(&settings.weights),
            requests: (0..workers).map(|_| WorkerRequests::default()).collect(),
            retry_budget: RetryBudget::new(settings.retry_budget_percent),
            settings,
        })
    }

    /// The hash of what `balance` sends to one server. `None` if it uses no key or the request has none. `headers`: as
    /// the server will get them.
    pub fn key(&self, headers: &HeaderMap, subject: Option<&str>) -> Option<u64> {
        match &self.settings.balance {
            Balance::RoundRobin | Balance::LeastRequests => None,
            Balance::Hash(Key::Subject) => subject.filter(|subject| !subject.is_empty()).map(str::as_bytes),
            Balance::Hash(Key::Header(name)) => headers.get(name).map(HeaderValue::as_bytes),
        }
        .map(balance::hash)
    }

    /// Sends a request to one server. If that failed and the request may be sent again, tries another server. The
    /// request is taken by reference: by value, it would be part of the future of every function on the way, twice in
    /// each.
    pub async fn send(
        &self,
        worker: usize,
        counts: Counts<'_>,
        client: IpAddr,
        key: Option<u64>,
        current: &CurrentServer,
        request: &mut Request<Body>,
    ) -> Result<UpstreamResponse, Failure> {
        let ticket = self.next_ticket(worker);
        let mut attempt = if self.in_use() == 1 { Attempt::OnlyServer } else { Attempt::FirstOfSeveral };
        // A drained server gets no request, also if all others fail.
        let mut tried = self.drained();
        let mut at = 0;
        let mut closings = 0;
        loop {
            at = self.pick(worker, ticket, key, tried).unwrap_or(at);
            tried |= 1 << at;
            let server = self.servers[at].of(worker, PaddedArc::clone);
            let ejections = server.state.ejections();
            current.set(at, ejections);
            counts.attempts.send_to(at);
            let SendFailure { failure, retry } = match server.send(worker, counts, client, request, attempt).await {
                Ok((response, mut connection)) => {
                    self.record_head(server, ejections, &mut connection);
                    return Ok((response, connection));
                }
                Err(failure) => failure,
            };
            let has_others = (tried.count_ones() as usize) < self.servers.len();
            closings += usize::from(retry == Some(RetryReason::Closing));
            let retry = if closings <= MAX_CLOSINGS { retry } else { None };
            let Some(next) = self.next_attempt(attempt, retry, has_others) else {
                if !failure.is_of_server() {
                    current.forget();
                }
                return Err(failure);
            };
            attempt = next;
            server.count_retry(counts, failure.reason(), request);
            if failure.is_of_server() {
                self.count_failure(current, &failure.to_string());
            }
        }
    }

    /// Counts a request. Each worker begins at another server.
    fn next_ticket(&self, worker: usize) -> u64 {
        let requests = &self.requests[worker].0;
        requests.inc();
        requests.get().wrapping_add(worker as u64)
    }

    /// Records the head of a response. `ejections`: how often the server had been ejected when it was chosen.
    fn record_head(&self, server: &Server, ejections: u64, connection: &mut PooledConnection) {
        if self.in_use() > 1 {
            server.state.record_head();
            connection.ejections = Some(ejections);
        }
    }

    /// Which attempt follows a failed one. `None` if the request must not be sent again.
    fn next_attempt(&self, failed: Attempt, retry: Option<RetryReason>, has_others: bool) -> Option<Attempt> {
        match retry? {
            RetryReason::Unsent => has_others.then_some(failed),
            // The server has had no work with it. If there is no other one, it gets the request over a new connection.
            RetryReason::Closing => Some(failed),
            RetryReason::Refused | RetryReason::Repeatable => self.may_repeat(has_others).then_some(Attempt::Retry),
        }
    }

    /// Returns true if a request may be sent a second time. The only server of an upstream gets it over a new
    /// connection.
    fn may_repeat(&self, has_others: bool) -> bool {
        (has_others || self.in_use() == 1) && self.retry_budget.try_spend(self.requests())
    }

    /// The servers that get no requests.
    fn drained(&self) -> Set {
        self.weights.as_ref().map_or(0, |weights| weights.drained)
    }

    /// The number of servers that get requests.
    fn in_use(&self) -> usize {
        self.servers.len() - self.drained().count_ones() as usize
    }

    /// The server for the next attempt; `None` if all were tried. A server without a free slot may be stuck, so another
    /// is taken instead. A key keeps its server even then.
    pub(super) fn pick(&self, worker: usize, ticket: u64, key: Option<u64>, tried: Set) -> Option<usize> {
        if self.servers.len() == 1 {
            return Some(0);
        }
        let seed = key.unwrap_or_else(|| balance::mix(ticket));
        let share = |at: usize| self.servers[at].state.share();
        let candidates = balance::candidates(&self.server_hashes, tried, seed, share);
        if candidates == 0 {
            return None;
        }
        if let (Balance::Hash(_), Some(key)) = (&self.settings.balance, key) {
            return Some(match &self.weights {
                None => balance::by_key(candidates, key, &self.server_hashes),
                Some(weights) => weights.by_key(candidates, key, &self.server_hashes),
            });
        }
        let free = |at: usize| self.servers[at].free_slots(worker);
        let in_flight = |at: usize| self.settings.max_concurrent_requests.saturating_sub(free(at));
        let choose = |set| match (&self.settings.balance, &self.weights) {
            (Balance::LeastRequests, None) => balance::least_requests(set, ticket, free),
            (Balance::LeastRequests, Some(weights)) => weights.least_requests(set, ticket, in_flight),
            (Balance::RoundRobin | Balance::Hash(_), None) => balance::round_robin(set, ticket),
            (Balance::RoundRobin | Balance::Hash(_), Some(weights)) => weights.round_robin(set, ticket),
        };
        let picked = choose(candidates);
        if self.servers[picked].has_free_slot(worker) {
            return Some(picked);
        }
        Some(self.with_free_slot(worker, candidates, tried).map_or(picked, choose))
    }

    /// The servers with a free slot. A server in slow start gets more than its share only if no candidate has a free
    /// slot.
    fn with_free_slot(&self, worker: usize, candidates: Set, tried: Set) -> Option<Set> {
        let has_free_slot = |at: usize| self.servers[at].has_free_slot(worker);
        let of_candidates = balance::filter(candidates, self.servers.len(), has_free_slot);
        if of_candidates != 0 {
            return Some(of_candidates);
        }
        let is_in_rotation = |at: usize| self.servers[at].state.share() > 0;
        let free = balance::filter(!tried, self.servers.len(), |at| is_in_rotation(at) && has_free_slot(at));
        (free != 0).then_some(free)
    }

    /// Records that the request at `current` failed for good. Counts only failures that the server caused.
    pub fn record_failure(&self, current: &CurrentServer, failure: &Reject) {
        let counts =
            [Reason::UpstreamConnect, Reason::UpstreamConnectTimeout, Reason::UpstreamBroken, Reason::UpstreamTimeout];
        if counts.contains(&failure.reason) {
            self.count_failure(current, &failure.detail);
        }
    }

    /// The only server of an upstream is never ejected, because no other can take its requests.
    pub(super) fn count_failure(&self, current: &CurrentServer, cause: &str) {
        let Some((at, ejections)) = current.get() else { return };
        if self.in_use() > 1 {
            self.servers[at].state.record_failure(&self.settings.ejection, ejections, cause, Instant::now());
        }
    }

    /// The number of requests so far, of all workers.
    pub(super) fn requests(&self) -> u64 {
        self.requests.iter().map(|requests| requests.0.get()).sum()
    }

    /// The state of each server.
    pub fn report(&self) -> Vec<Report> {
        let of = |(at, server): (usize, &PerWorker<PaddedArc<Server>>)| {
            let report = Report::of(server);
            if self.drained() & (1 << at) == 0 { report } else { Report { state: "drained", ..report } }
        };
        self.servers.iter().enumerate().map(of).collect()
    }
}

/// Those from before, so that they go on over a reload.
fn response_times(before: Option<&Upstream>, workers: usize) -> Arc<[Histogram]> {
    let before = before.map(|before| &before.response_times).filter(|before| before.len() == workers);
    before.cloned().unwrap_or_else(|| (0..workers).map(|_| Histogram::of_requests()).collect())
}

/// The state and the addresses of a server: those from before, if the upstream had this server already.
fn state_before(
    before: Option<&Upstream>,
    settings: &UpstreamSettings,
    server: &ServerSettings,
) -> (Arc<ServerState>, Arc<Addresses>) {
    let same = before.and_then(|before| {
        let at = before.settings.servers.iter().position(|other| other == server)?;
        before.servers.get(at)
    });
    match same {
        Some(same) => (same.state.clone(), same.connector.addresses.clone()),
        None => {
            let state = ServerState::new(&settings.name, server.authority());
            (Arc::new(state), Arc::new(Addresses::new(&server.host, server.port)))
        }
    }
}

//! The state of one server, for the admin API and the metrics.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::balance::FULL_WEIGHT;
use super::pool::Server;

pub struct Report {
    pub server: String,
    /// `in`, `returning`, `ejected`, `unhealthy` or `drained`.
    pub state: &'static str,
    /// The share of the requests that the server gets: 0 to 1.
    pub share: f64,
    /// Requests in flight.
    pub in_flight: usize,
    pub ejections: u64,
    pub retries: u64,
    pub failed_checks: u64,
    /// Responses that broke off after their head.
    pub broken_responses: u64,
    pub addresses: Vec<SocketAddr>,
}

impl Report {
    pub(super) fn of(server: &Server) -> Self {
        let state = &server.state;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Report {
            server: server.name.clone(),
            state: state.name(),
            share: f64::from(state.share()) / f64::from(FULL_WEIGHT),
            in_flight: server.in_flight(),
            ejections: state.ejections(),
            retries: read(&state.retries),
            failed_checks: read(&state.failed_checks),
            broken_responses: read(&state.broken_responses),
            addresses: server.connector.addresses.known().to_vec(),
        }
    }
}

//! A connection of the pool in use by one request, until its response ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::pool::{Http1Connection, Server};
use super::server_state::ServerState;
use super::slots::Slot;
use crate::types::per_worker::PaddedArc;

/// The slot of one request and its connection. Released at the end of the response body; if it is dropped before, the
/// connection is closed.
pub struct PooledConnection {
    /// `None` over HTTP/2, where requests share a connection.
    connection: Option<Box<Http1Connection>>,
    server: Arc<PaddedArc<Server>>,
    worker: usize,
    _slot: Slot,
    /// How often the server had been ejected when it was chosen. `None` for the only server of an upstream: it is never
    /// ejected.
    pub(super) ejections: Option<u64>,
}

impl PooledConnection {
    pub(super) fn new(
        server: &Arc<PaddedArc<Server>>,
        worker: usize,
        connection: Option<Box<Http1Connection>>,
        slot: Slot,
    ) -> Self {
        PooledConnection { connection, server: server.clone(), worker, _slot: slot, ejections: None }
    }

    /// Records that the response body broke off because of the server.
    pub fn record_broken_body(&self, cause: &str) {
        self.broken_responses().count();
        if let Some(ejections) = self.ejections {
            self.server.state.record_broken_body(&self.server.ejection, ejections, cause, Instant::now());
        }
    }

    /// For a tunnel, which returns no connection to the pool.
    pub fn broken_responses(&self) -> BrokenResponses {
        BrokenResponses(self.server.state.clone())
    }

    /// Records that the response is complete, and returns the connection to the pool.
    pub fn release(mut self, now: Instant) {
        self.server.state.record_complete();
        if let Some(connection) = self.connection.take() {
            self.server.put_idle(self.worker, connection, now);
        }
    }
}

/// The responses of one server that broke off.
pub struct BrokenResponses(Arc<ServerState>);

impl BrokenResponses {
    pub fn count(&self) {
        self.0.broken_responses.fetch_add(1, Ordering::Relaxed);
    }
}

//! Who is at the other end of a client connection.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocols::http::forwarded::Origin;
use crate::protocols::tls::Sni;
use crate::telemetry::metrics::Count;

/// One client connection, shared by its requests and by the tunnels that outlive it.
pub struct Peer {
    /// Of the client, also where a balancer passed its connection on.
    pub address: SocketAddr,
    /// May its headers say where a request came from, if its address is trusted? Not on a connection of which a balancer
    /// did not say whose it is: that has the balancer's address.
    pub trusts_forwarded: bool,
    /// What upstreams are told about it, written once a connection.
    pub origin: Origin,
    /// The name that its handshake asked for; `None` without one, and without TLS.
    pub sni: Option<Sni>,
    /// Requests that it made.
    pub requests: Count,
    /// `limits.requests_per_connection`: its connection ends with this one.
    pub last_request: u64,
    /// What it asked could be read in two ways: it is asked nothing more.
    pub ended: AtomicBool,
    /// Kept as long as anybody still serves this connection: a place among the open ones, the drain's wish to be told.
    pub kept: Box<dyn Any + Send + Sync>,
}

impl Peer {
    /// Has it made as many requests as its connection may carry?
    pub fn is_at_last_request(&self) -> bool {
        self.requests.get() >= self.last_request || self.ended.load(Ordering::Relaxed)
    }

    /// Its connection carries no further request.
    pub fn ends(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

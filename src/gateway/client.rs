//! The client connection that a request came on.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocols::http::forwarded::ForwardedClient;
use crate::protocols::tls::{PeerCertificate, ServerTls, Session};
use crate::telemetry::metrics::Count;
use crate::tokens::dpop::PublicUrl;
use crate::types::clock::UnixTime;

/// One client connection, shared by its requests and by the tunnels that outlive it.
pub struct Peer {
    /// The client's address, also if a balancer sent it in a PROXY protocol header.
    pub address: SocketAddr,
    /// If true, and the address is trusted, the request headers may name the client of a request. False if the
    /// balancer did not name the client: the connection then has the address of the balancer.
    pub trusts_forwarded: bool,
    /// What upstreams learn about the client, prepared once for each connection.
    pub client: ForwardedClient,
    /// The server name of the TLS handshake; `None` without one, and without TLS.
    pub sni: Option<String>,
    /// The certificates of the listener, as the handshake found them. `None` without TLS.
    pub listener: Option<Arc<ServerTls>>,
    /// `None` without TLS.
    pub tls: Option<Session>,
    /// `None` if the client has shown no certificate.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// `listener.public_url`
    pub public_url: Option<Arc<PublicUrl>>,
    /// Requests received on this connection.
    pub requests: Count,
    pub in_flight: InFlightCount,
    /// `limits.requests_per_connection`: the connection closes after this request.
    pub last_request: u64,
    /// If true, the connection carries no further request: one of its requests could be read in two ways.
    pub ended: AtomicBool,
    /// Dropped with the connection and its tunnels: its slots, and a sender that the drain waits for.
    pub kept: Box<dyn Any + Send + Sync>,
}

impl Peer {
    /// For how long the connection may be used: no longer than the certificate of the client is good.
    pub fn max_age(&self, configured: Duration, now: UnixTime) -> Duration {
        self.certificate.as_ref().map_or(configured, |certificate| configured.min(certificate.end().since(now)))
    }

    /// Returns true if the connection carries no further request.
    pub fn must_close(&self) -> bool {
        self.requests.get() >= self.last_request || self.ended.load(Ordering::Relaxed)
    }

    /// The connection carries no further request.
    pub fn ends(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Counts a request or a tunnel as in flight until the guard is dropped.
    pub fn begin_request(self: &Arc<Self>) -> InFlight {
        self.in_flight.started.inc();
        InFlight(self.clone())
    }

    /// Returns true if a request or a tunnel is in flight on this connection.
    pub fn has_in_flight(&self) -> bool {
        self.in_flight.started.get() != self.in_flight.finished.get()
    }
}

/// Guards that were made and dropped. Only the worker of the connection writes these.
#[derive(Default)]
pub struct InFlightCount {
    started: Count,
    finished: Count,
}

/// Keeps its connection from being idle, and open for the drain.
pub struct InFlight(Arc<Peer>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.finished.inc();
    }
}

//! Listeners and workers: accept, TLS handshake with a deadline, one hyper connection, each request to the gateway.
//!
//! A worker is one thread with a current-thread runtime, its own listeners (SO_REUSEPORT) and its own upstream connections:
//! a connection stays on the core that accepted it.

mod client_io;
mod connection;
mod disconnect;
mod executor;
mod flood;
mod handshake_io;
mod linger;
mod proxied;
mod request_heads;
mod retry_delay;
mod serve;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::limits::pace::MinRate;
use crate::limits::penalty::{PenaltyBox, PenaltySettings};
use crate::limits::per_address::PerAddressLimit;
use crate::protocols::tls::{self, ServerSide};

pub use flood::Settings as FloodSettings;
pub use retry_delay::RetryDelay;
pub use worker::spawn;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSettings {
    pub address: SocketAddr,
    pub tls: tls::Settings,
    /// Every connection begins with a header of the PROXY protocol, from a peer that `[forwarding]` trusts.
    pub proxy_protocol: bool,
}

/// `[timeouts]` and `[limits]` of the client's side.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionSettings {
    /// `timeouts.tls_handshake`
    pub tls_handshake: Duration,
    /// `timeouts.request_header`: from the first byte waited for to the end of the request head; also how long HTTP/1 keep-alive idles.
    pub request_header: Duration,
    /// `timeouts.http2_idle`: an HTTP/2 connection without a request for so long is closed.
    pub http2_idle: Duration,
    /// `timeouts.write`: a client that takes no byte of its answer for so long is cut off.
    pub write: Duration,
    /// `limits.min_download_rate`: so much of an answer a client takes, or is cut off.
    pub min_download_rate: MinRate,
    /// `limits.min_upload_rate`: so much of a body a client sends, or is refused.
    pub min_upload_rate: MinRate,
    /// `timeouts.body_idle`: longest silence in the middle of a body, either way.
    pub body_idle: Duration,
    /// `timeouts.request`: of a request with its answer, unless that is a stream.
    pub request: Option<Duration>,
    /// `timeouts.max_connection_age`: a connection that is so old ends with the requests it is in.
    pub max_connection_age: Duration,
    /// `limits.requests_per_connection`
    pub requests_per_connection: u64,
    /// `timeouts.drain`: what is still running so long after SIGTERM is cut.
    pub drain: Duration,
    /// `limits.connections`: open client connections, over all workers.
    pub connections: usize,
    /// `limits.connections_per_address`: of these, from one address; 0 for any number.
    pub connections_per_address: usize,
    /// `limits.concurrent_requests`: under way at once, over all workers; 0 for any number.
    pub concurrent_requests: usize,
    /// `limits.reserve_percent`: of a hundred of them, so many are kept back for addresses that have few.
    pub reserve_percent: usize,
    /// `limits.request_header_size`: bytes of a request head.
    pub request_header_size: usize,
    /// `limits.request_header_count`: fields of a request head.
    pub request_header_count: usize,
    /// `limits.uri_size`
    pub uri_size: usize,
    /// `limits.body_size`: `None` for any.
    pub body_size: Option<u64>,
    /// `limits.http2_concurrent_streams`: HTTP/2 streams of one connection.
    pub http2_concurrent_streams: u32,
    /// Of HTTP/2 frames that ask for nothing.
    pub flood: FloodSettings,
    /// Of addresses that sent too many of them, or failed in other ways again and again.
    pub penalty: PenaltySettings,
    /// `limits.retry_delay`: so long waits an answer 429 to a client that has had many in a row; zero: it does not.
    pub retry_delay: Duration,
}

/// A bound listener of one worker.
pub struct Listener {
    pub socket: std::net::TcpListener,
    /// Taken anew for each connection: a reload swaps it.
    pub tls: Option<Arc<ArcSwap<ServerSide>>>,
    pub proxy_protocol: bool,
}

/// What all connections share.
pub struct Shared {
    pub gateway: ArcSwap<Gateway>,
    pub settings: ConnectionSettings,
    /// Places for client connections.
    pub places: Arc<Semaphore>,
    /// Who has them.
    pub crowd: Arc<PerAddressLimit>,
    /// Who may have none for a while.
    pub penalties: PenaltyBox,
    /// Answers that wait.
    pub retry_delay: RetryDelay,
    /// `true` from the moment that the process drains.
    pub draining: watch::Receiver<bool>,
}

impl Shared {
    /// Returns when the process drains.
    async fn drains(&self) {
        let mut draining = self.draining.clone();
        // An error means that the sender is gone, and with it whoever could end us in an orderly way.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Does it drain? One load, where waiters of all workers would meet at a lock whenever they are polled. The value changes
    /// once, and nobody has marked this receiver's as seen.
    fn is_draining(&self) -> bool {
        self.draining.has_changed().unwrap_or(true)
    }

    /// Returns when the process drains, and not before then.
    async fn drains_after(&self, then: Instant) {
        self.drains().await;
        tokio::time::sleep_until(then).await;
    }

    /// Returns when the process has drained for so long.
    async fn has_drained_for(&self, time: Duration) {
        self.drains().await;
        tokio::time::sleep(time).await;
    }
}

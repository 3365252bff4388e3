//! State that client connections share: in the whole process, and in one worker.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, Semaphore, watch};

use super::crowd::CrowdQueue;
use super::idle_list::IdleList;
use super::linger_slots::LingerSlots;
use super::retry_delay::RetryDelay;
use super::settings::ConnectionSettings;
use crate::gateway::Gateway;
use crate::gateway::client::Peer;
use crate::gateway::source::SourceKind;
use crate::gateway::worker::Worker;
use crate::limits::penalty::PenaltyBox;
use crate::limits::per_address::PerAddressLimit;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::Uptime;
use crate::types::limit::Limit;
use crate::types::per_worker::{PaddedArc, PerWorker};

/// How long a connection that is accepted during the drain may take to begin its first request.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Records an offence of an address. Returns the limit that was hit.
pub(super) type RecordOffence = fn(&PenaltyBox, IpAddr, Uptime) -> Option<Limit>;

/// What all connections share.
pub struct Shared {
    pub gateway: ArcSwap<PerWorker<PaddedArc<Gateway>>>,
    /// Read for each connection: a reload replaces them.
    pub settings: ArcSwap<ConnectionSettings>,
    /// `limits.connections`
    pub connection_slots: Arc<Semaphore>,
    /// `limits.connections_per_address`
    pub per_address: Arc<PerAddressLimit>,
    pub idle: Arc<IdleList>,
    pub penalties: PenaltyBox,
    pub retry_delay: RetryDelay,
    /// Becomes true when the drain begins.
    pub draining: watch::Receiver<bool>,
}

impl Shared {
    /// Returns when the drain begins.
    pub(super) async fn drain_begins(&self) {
        let mut draining = self.draining.clone();
        // An error means that the sender was dropped. The process ends then, too.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Returns true if the process drains. This is one atomic load: waiters of all workers would share a lock, and take
    /// it at each poll. The value changes once, and no code marks this receiver's value as seen.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.has_changed().unwrap_or(true)
    }

    /// Returns when the drain leaves no more time for the first request of a connection.
    pub(super) async fn first_request_overdue(&self) {
        self.drain_begins().await;
        tokio::time::sleep(FIRST_REQUEST).await;
    }

    /// For how long a connection may be used.
    pub(super) fn max_age(&self, peer: &Peer, configured: Duration) -> Duration {
        peer.max_age(configured, self.gateway.load().clock.now())
    }

    /// How many of `limits.connections` are kept for addresses with few connections.
    pub(super) fn reserved_connections(&self) -> usize {
        let settings = self.settings.load();
        settings.connections * settings.reserve_percent / 100
    }

    /// Records an offence of this peer, unless its address stands for many clients: one of them could lock out the
    /// others.
    pub(super) fn penalize(&self, peer: &Peer, metrics: &WorkerMetrics, record: RecordOffence) {
        let gateway = self.gateway.load();
        let address = peer.address.ip();
        if !sender(peer, &gateway).is_shared()
            && let Some(limit) = record(&self.penalties, address, gateway.clock.uptime())
        {
            metrics.limit_hit(limit);
        }
    }
}

/// Who sends the requests of this connection.
pub(super) fn sender(peer: &Peer, gateway: &Gateway) -> SourceKind {
    gateway.fronts.sender(peer.address.ip(), peer.trusts_forwarded)
}

/// What the connections of one worker share.
pub(super) struct WorkerState {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: Arc<Worker>,
    pub(super) linger_slots: LingerSlots,
    pub(super) crowd: CrowdQueue,
    /// Notified once, when the drain begins.
    pub(super) drain: Notify,
}

impl WorkerState {
    /// As [`Shared::drain_begins`], in less than half of the memory. For idle connections.
    pub(super) async fn drain_begins(&self) {
        // Before the check: it gets a notification that comes between the two.
        let drain = self.drain.notified();
        if !self.shared.is_draining() {
            drain.await;
        }
    }
}

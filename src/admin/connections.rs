//! How many clients can be connected at once.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::Settings;
use crate::limits::per_address::{AddressGuard, PerAddressLimit};
use crate::telemetry::metrics::WorkerMetrics;

/// `admin.connections` and `admin.connections_per_address`. The Unix socket has slots of its own, so that clients of
/// the address cannot lock out the command line.
pub struct AdminConnections {
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    per_address: Arc<PerAddressLimit>,
    counters: Arc<WorkerMetrics>,
}

/// Frees the slot when it is dropped.
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    _address: Option<AddressGuard>,
}

impl AdminConnections {
    pub fn new(settings: &Settings, counters: Arc<WorkerMetrics>) -> Self {
        let slots = || Arc::new(Semaphore::new(settings.connections));
        let per_address = Arc::new(PerAddressLimit::new(settings.connections_per_address));
        AdminConnections { local: slots(), remote: slots(), per_address, counters }
    }

    /// A slot for a client of the Unix socket.
    pub(super) fn local(&self) -> Option<Slot> {
        self.slot(&self.local)
    }

    pub(super) fn remote(&self, client: IpAddr) -> Option<Slot> {
        let slot = self.slot(&self.remote)?;
        let address = self.per_address.acquire(client);
        if address.is_none() {
            self.counters.address_connections_rejected.inc();
        }
        Some(Slot { _address: Some(address?), ..slot })
    }

    fn slot(&self, slots: &Arc<Semaphore>) -> Option<Slot> {
        let permit = slots.clone().try_acquire_owned();
        if permit.is_err() {
            self.counters.connections_rejected.inc();
        }
        Some(Slot { _permit: permit.ok()?, _address: None })
    }
}

//! The store itself: it runs operations. `open.rs` opens it, `calls.rs` has its calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::driver::Driver;
use super::lane::Lane;
use super::operation::{Operation, Shared};
use super::replicas;
use super::session::Session;
use crate::store::api::{Outbox, StoreFuture};
use crate::store::freshness::Freshness;

/// The shared store. Dropping it finishes the queued operations and closes the connections, which can take as long as
/// the database needs.
pub struct PostgresStore {
    pub(super) driver: Driver,
    pub(super) shared: Arc<Shared>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) freshness: Arc<Freshness>,
}

impl PostgresStore {
    /// With `store.strict`, see [`replicas::when_applied`].
    pub(super) fn when_applied<T: Send + 'static>(
        &self,
        revoked: StoreFuture<T>,
        sequence: fn(&T) -> Option<u64>,
    ) -> StoreFuture<T> {
        if self.freshness.is_strict() {
            replicas::when_applied(&self.driver, self.freshness.max_staleness(), revoked, sequence)
        } else {
            revoked
        }
    }

    /// Finishes the queued operations and closes the connections.
    pub(super) fn shut_down(&self) {
        self.leave();
        self.driver.close();
    }

    /// Other gateways need not wait for this one any more.
    fn leave(&self) {
        if !self.shared.has_left.swap(true, Ordering::AcqRel) {
            // Closing waits for it.
            drop(self.run(Lane::Upkeep, replicas::Leave));
        }
    }

    pub(super) fn run<O: Operation>(&self, lane: Lane, operation: O) -> StoreFuture<O::Output> {
        let shared = self.shared.clone();
        let operation = Arc::new(operation);
        let run = move |session: Session| {
            let shared = shared.clone();
            let operation = operation.clone();
            async move { operation.run(&shared, &session).await }
        };
        self.driver.submit(lane, O::KIND, run)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shut_down();
    }
}

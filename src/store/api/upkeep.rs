//! The part of a store for upkeep: sweeps, probes, and the work that one gateway does for all.

use std::sync::Arc;

use crate::store::api::future::StoreFuture;
use crate::store::expired::Expired;
use crate::store::freshness::Freshness;
use crate::store::pool::PoolStatus;
use crate::types::clock::UnixTime;

/// What keeps a store small, and tells how it is.
pub trait StoreUpkeep: Send + Sync {
    /// Deletes families, revocations and watermarks that no longer matter, at most `limit` of each. Returns how many
    /// rows were deleted. Logins of which the provider is still to be told stay for a day of attempts, see
    /// `provider_login`.
    /// Two gateways that sweep at the same time delete each row once.
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize>;

    /// What [`StoreUpkeep::sweep`] has still to delete. Counts at most `limit` rows of each table. Logins that no
    /// gateway has tried do not count.
    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired>;

    /// Fails if the store cannot commit right now. After `Ok`, what was visible before is as durable as a change of
    /// this call.
    fn check(&self) -> StoreFuture<()>;

    /// As [`StoreUpkeep::check`], for a readiness probe. Also fails if other calls have just failed because the disk is
    /// full or broken: the change of a check may be too small to notice it.
    fn probe(&self) -> StoreFuture<()>;

    /// How new the knowledge of what other gateways write is. `None` if there are no others.
    fn freshness(&self) -> Option<Arc<Freshness>> {
        None
    }

    /// What its connections do now. `None` if there are none.
    fn pool(&self) -> Option<Arc<PoolStatus>> {
        None
    }

    /// Takes a lease for some seconds if it is free, or renews it. Returns true if this gateway holds it: one gateway
    /// at a time does the work with this name. Always true if the store belongs to one gateway.
    fn hold_lease(&self, _name: String) -> StoreFuture<bool> {
        Box::pin(async { Ok(true) })
    }

    /// Finishes the queued calls and releases the lock that only one gateway can hold. Every later call fails.
    fn close(&self) {}
}

//! What all operations share, and how each of them runs.

use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::postgres::append::Log;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::outbox::Audit;
use crate::store::postgres::rotations::Rotations;
use crate::store::postgres::session::Session;
use crate::store::provider_login::SweepTimes;

/// One call of the store. It may run again after a lost connection, when its changes may have been committed already:
/// the same changes must not be made twice.
///
/// A success that rests on what was only read must call [`Session::wait_until_durable`] first.
pub(super) trait Operation: Send + Sync + 'static {
    type Output: Send + 'static;

    fn run(&self, shared: &Shared, session: &Session) -> impl Future<Output = Result<Self::Output, QueryError>> + Send;
}

pub(super) struct Shared {
    /// The `iss` of the gateway's own access tokens.
    pub(super) issuer: String,
    /// The name of this gateway.
    pub(super) replica: String,
    /// The epoch of the lease for deliveries, when this gateway last held it; 0: never.
    pub(super) delivery_epoch: AtomicI64,
    /// The store is being closed.
    pub(super) has_left: AtomicBool,
    pub(super) enforcement: Arc<Enforcement>,
    pub(super) audit: Arc<Audit>,
    pub(super) log: Log,
    pub(super) rotations: Rotations,
    pub(super) sweeps: SweepTimes,
    /// Held while the signing keys change, so that calls of this gateway do not overtake each other.
    pub(super) keys: tokio::sync::Mutex<()>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

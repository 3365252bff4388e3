//! What all operations share, and how each of them runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::api::{LogOrder, RevocationHook};
use crate::store::error::StoreError;
use crate::store::postgres::append::Log;
use crate::store::postgres::audit::Audit;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;

/// For how long a revocation of another gateway is enforced again when an operation meets it. The follower has brought
/// it long before, or this gateway rejects everything.
const RECENT: Duration = Duration::from_mins(1);

/// One call of the store. It may run again after a lost connection, when its changes may have been committed already:
/// the same changes must not be made twice.
pub(super) trait Operation: Send + Sync + 'static {
    type Output: Send + 'static;

    fn run(&self, shared: &Shared, session: &Session) -> impl Future<Output = Result<Self::Output, QueryError>> + Send;
}

pub(super) struct Shared {
    /// The `iss` of the gateway's own access tokens.
    pub(super) issuer: String,
    /// The name of this gateway.
    pub(super) replica: String,
    /// The epoch of the lease for deliveries, when this gateway last held it.
    pub(super) delivery_epoch: AtomicI64,
    /// The store is being closed.
    pub(super) has_left: AtomicBool,
    /// The longest lifetime of access tokens that was ever configured.
    pub(super) longest_life: Duration,
    pub(super) enforce: RevocationHook,
    pub(super) audit: Audit,
    pub(super) log: Log,
    /// Held while the signing keys change, so that calls of this gateway do not overtake each other.
    pub(super) keys: tokio::sync::Mutex<()>,
}

impl Shared {
    /// Enforces revocations that are durable. Entries of other gateways may come before them.
    pub(super) fn enforce(&self, revocations: &[Revocation]) -> Result<(), QueryError> {
        let enforced = catch_unwind(AssertUnwindSafe(|| {
            revocations.iter().for_each(|each| (self.enforce)(each, LogOrder::Ahead));
        }));
        enforced.map_err(|_| StoreError::new("the revocations were written, but enforcing them panicked").into())
    }

    /// Another gateway, or an earlier attempt of the same operation, has revoked this family. The caller learns that it
    /// has ended, so that its access tokens must not be accepted here any more.
    pub(super) fn enforce_ended(&self, family: &Family, now: UnixTime) -> Result<(), QueryError> {
        let Some(revoked) = family.revoked.filter(|revoked| revoked.at + RECENT >= now) else { return Ok(()) };
        let (what, until) = (Revoked::Family(family.id), revoked.at + self.longest_life);
        self.enforce(&[Revocation { sequence: 0, what, at: revoked.at, until }])
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

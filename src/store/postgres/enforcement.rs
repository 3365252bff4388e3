//! Enforces what is durable, before the caller learns it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::store::api::{LogOrder, RevocationHook};
use crate::store::error::StoreError;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;

/// For how long a revocation of another gateway is enforced again when an operation meets it. The follower has brought
/// it long before, or this gateway rejects everything.
const RECENT: Duration = Duration::from_mins(1);

pub(super) struct Enforcement {
    pub(super) hook: RevocationHook,
    /// The longest lifetime of access tokens that was ever configured.
    pub(super) longest_life: Duration,
}

impl Enforcement {
    /// Enforces revocations that are durable. Entries of other gateways may come before them.
    pub(super) fn enforce(&self, revocations: &[Revocation]) -> Result<(), StoreError> {
        let enforced = catch_unwind(AssertUnwindSafe(|| {
            revocations.iter().for_each(|each| (self.hook)(each, LogOrder::Ahead));
        }));
        enforced.map_err(|_| StoreError::new("the revocations were written, but enforcing them panicked"))
    }

    /// Another gateway, or an earlier attempt of the same operation, has revoked this family. The caller learns that it
    /// has ended, so that its access tokens must not be accepted here any more.
    pub(super) fn enforce_ended(&self, family: &Family, now: UnixTime) -> Result<(), StoreError> {
        let Some(revoked) = family.revoked.filter(|revoked| revoked.at + RECENT >= now) else { return Ok(()) };
        let what = Revoked::Family(family.id);
        let until = revoked.at + self.longest_life;
        self.enforce(&[Revocation { sequence: 0, what, at: revoked.at, until }])
    }
}

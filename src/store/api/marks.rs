//! The part of a store for what can be used once.

use crate::store::api::future::StoreFuture;
use crate::store::mark::{Mark, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;

/// What can be used once: proofs, assertions, reports of providers, subject tokens.
pub trait MarkStore: Send + Sync {
    /// Uses something that can be used once. Only the first use carries out `revoke`, as [`RevocationStore::revoke`]
    /// does, and in the same transaction.
    ///
    /// [`RevocationStore::revoke`]: crate::store::RevocationStore::revoke
    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked>;

    /// Returns what [`MarkStore::mark`] would return. Uses nothing.
    fn marked(&self, mark: Mark) -> StoreFuture<Marked>;
}

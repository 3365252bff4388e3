//! The part of a store for the log of revocations.

use std::sync::Arc;

use crate::store::api::future::StoreFuture;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::{Revocation, Revoked};

/// Called for each revocation after it is durable and before the call that made it returns. It runs on the thread of
/// the store, so that the revocation is enforced even if the client has disconnected.
pub type RevocationHook = Arc<dyn Fn(&Revocation, LogOrder) + Send + Sync>;

/// Maximum number of entries of the log in one result, so that a start with millions does not hold all at once.
pub const MAX_REVOCATIONS: usize = 16_384;

/// Whether the hook has all earlier entries of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOrder {
    /// The hook was called for every earlier entry.
    InOrder,
    /// Other gateways may have written earlier entries that the hook did not see yet.
    Ahead,
}

/// Revocations of anything but one family. Each records an audit event in the same transaction.
pub trait RevocationStore: Send + Sync {
    /// Writes a revocation of anything but a family, and returns its sequence. A family is an error.
    ///
    /// Watermarks can only be raised. A watermark over everything, over the gateway's own issuer, over one of its
    /// subjects or over a client also ends the families that are as old or older. A watermark of now or later also ends
    /// the existing families that are dated later.
    ///
    /// A session, a subject or an issuer also ends each family that came from there, with an entry of its own. A
    /// watermark ends those with an origin that is dated at or before it.
    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64>;

    /// The revocations with a sequence above `after`, in order: at most [`MAX_REVOCATIONS`]. Also those that have ended
    /// and were not swept yet: the clock may be wrong.
    fn revocations_since(&self, after: u64) -> StoreFuture<Vec<Revocation>>;
}

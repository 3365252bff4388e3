//! The connections of the store by use, so that slow operations do not hold up others.

use crate::types::ids::TokenId;

/// Number of connections besides those for changes: for the log, for upkeep, for the follower.
pub(super) const MORE: usize = 3;

/// Which connection an operation uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// The same one for each operation on this family, so that they do not wait for each other's locks.
    Family(TokenId),
    /// For what appends to the log: serial in the database, and it may wait there for a lock. Not that of a family,
    /// unless it has none now.
    Log,
    Any,
    /// For sweeps, leases and heartbeats, which must not delay requests.
    Upkeep,
    /// For the follower, which listens for notifications. Never shared.
    Follower,
}

/// Which of `lanes` connections the operations on a family use.
pub(super) fn family_lane(id: TokenId, lanes: usize) -> usize {
    usize::try_from(id.as_u128() % lanes.max(1) as u128).unwrap_or_default()
}

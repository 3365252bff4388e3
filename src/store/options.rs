//! What a store is opened with, whatever its database.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The gateway's own issuer, `tokens.issuer`. Revocations of its subjects also end their families.
    pub issuer: String,
    /// How long a revocation is kept: the longest lifetime of access tokens of any issuer, plus the clock skew. The
    /// store remembers the largest value ever, because tokens that were issued before the operator lowered the setting
    /// must stay revocable.
    pub longest_life: Duration,
    /// How long a family can live, `tokens.refresh_absolute`. The gateway's own access tokens are accepted at refreshes
    /// for as long. The store remembers the largest value ever.
    pub longest_family: Duration,
    /// `timeouts.store`: how long a caller waits. Later, a call may not end a family that its caller did not name.
    pub timeout: Duration,
    /// `audit.outbox`: maximum number of undelivered audit events; 0: record none.
    pub audit: usize,
}

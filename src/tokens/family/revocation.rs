//! What can be revoked, and for how long a revocation has to be remembered.
//!
//! The store keeps revocations as a log with a gap-free sequence; `revocations.rs` enforces them on every request.

use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Which tokens a revocation concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// Every token of one family.
    Family(TokenId),
    /// One access token of any issuer, by its `jti`.
    Token { issuer: String, jti: String },
    /// Every token of a subject that was issued at or before a time.
    Subject { issuer: String, subject: String, not_after: UnixTime },
    /// Every token of an issuer that was issued at or before a time.
    Issuer { issuer: String, not_after: UnixTime },
    /// Every token that was issued at or before a time.
    Everything { not_after: UnixTime },
}

/// One entry of the revocation log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Its place in the log: 1, 2, 3, … in the order of commits, without gaps.
    pub sequence: u64,
    pub what: Revoked,
    pub at: UnixTime,
    /// No access token that it concerns can be valid after this; the entry may be forgotten then.
    pub until: UnixTime,
}

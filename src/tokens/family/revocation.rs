//! The objects of a revocation, and the time for which it is kept.
//!
//! The store keeps revocations as a log with a gap-free sequence. `auth/revocations/` enforces them on every request.

use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The tokens that a revocation applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// Every token of one family.
    Family(TokenId),
    /// One access token of any issuer, by its `jti`.
    Token { issuer: String, jti: String },
    /// Every token of another issuer with this `sid`, and every family with this [`FamilyOrigin`](super::FamilyOrigin).
    Session { issuer: String, session: String },
    /// Every token of a subject that is dated at or before `not_after`: a token of this gateway by its login
    /// (`auth_time_ms`), any other by its `iat`. Also every family with such an origin, by its date there.
    Subject { issuer: String, subject: String, not_after: UnixTime },
    /// Every token of an issuer that is dated at or before `not_after`, and every family with such an origin.
    Issuer { issuer: String, not_after: UnixTime },
    /// Every token of this gateway with this `client_id` that is dated at or before `not_after`: of all users, or of
    /// one.
    Client { client_id: String, subject: Option<String>, not_after: UnixTime },
    /// Every token that is dated at or before `not_after`.
    Everything { not_after: UnixTime },
}

impl Revoked {
    /// The time of a watermark. `None` for anything else.
    pub fn not_after(&self) -> Option<UnixTime> {
        match self {
            Revoked::Family(_) | Revoked::Token { .. } | Revoked::Session { .. } => None,
            Revoked::Subject { not_after, .. }
            | Revoked::Issuer { not_after, .. }
            | Revoked::Client { not_after, .. }
            | Revoked::Everything { not_after } => Some(*not_after),
        }
    }

    /// The same watermark with another time.
    #[must_use]
    pub fn with_not_after(mut self, time: UnixTime) -> Self {
        match &mut self {
            Revoked::Family(_) | Revoked::Token { .. } | Revoked::Session { .. } => {}
            Revoked::Subject { not_after, .. }
            | Revoked::Issuer { not_after, .. }
            | Revoked::Client { not_after, .. }
            | Revoked::Everything { not_after } => *not_after = time,
        }
        self
    }
}

/// One entry of the revocation log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The position in the log: 1, 2, 3, … in the order of commits, without gaps.
    pub sequence: u64,
    pub what: Revoked,
    pub at: UnixTime,
    /// The entry can be deleted after this, because no access token that it applies to is valid any more.
    pub until: UnixTime,
}

//! The part of a store for families: logins, API keys, and what has ended them.

use crate::store::api::future::StoreFuture;
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::search::{FoundFamilies, KeySearch, LiveClient, Search};
use crate::tokens::audit_event::EventContext;
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The decision of [`FamilyStore::rotate`], made inside its transaction from the family and the watermark of its
/// subject. The last argument is the time of the store, by which the grace period is measured; `None` if it does not
/// matter, for a family that is unknown. A new generation that gets this time as its `rotated_at` gets the time of the
/// write, as the same clock shows it.
///
/// It must have no side effects: the store may run a transaction again, and only the last decision counts.
pub type DecideRotation =
    Box<dyn Fn(Option<&Family>, Option<UnixTime>, &PresentedToken, Option<UnixTime>) -> Rotation + Send>;

/// Who revokes a family. [`FamilyStore::revoke_family`] checks it inside its transaction.
#[derive(Clone, Debug)]
pub enum RevokedBy {
    /// The owner: the family must belong to this subject.
    Owner(String),
    /// An operator, who can revoke every family.
    Admin,
    /// The gateway itself: what began the family was used a second time.
    Reuse,
}

impl RevokedBy {
    pub fn can_revoke(&self, family: &Family) -> bool {
        match self {
            RevokedBy::Owner(subject) => family.subject == *subject,
            RevokedBy::Admin | RevokedBy::Reuse => true,
        }
    }

    pub const fn reason(&self) -> RevokeReason {
        match self {
            RevokedBy::Owner(_) => RevokeReason::Logout,
            RevokedBy::Admin => RevokeReason::Admin,
            RevokedBy::Reuse => RevokeReason::Reuse,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeOutcome {
    /// The family is revoked, durably.
    Revoked,
    /// The family and all its access tokens had ended before. Nothing was written.
    AlreadyEnded,
    /// There is no such family, or it belongs to another subject. The client must not learn which.
    NotFound,
}

/// What came of [`FamilyStore::issue_once`].
#[derive(Clone, Debug, PartialEq)]
pub enum IssuedOnce {
    Written(Family),
    /// A watermark voids the family, or the session that it comes from has ended, as for [`FamilyStore::issue`].
    Void,
    /// There is a family with this id, which may have ended. Nothing was written.
    Taken(Family),
}

/// Families. Each change records its decision as an audit event in the same transaction.
pub trait FamilyStore: Send + Sync {
    /// Writes a new family. If its subject then has more than `max_live` live families, the least recently used ones
    /// are revoked before this returns. API keys and families without refresh tokens do not count. Several logins at
    /// the same time may revoke each other, so that no caller ever learns of more live families than the limit.
    ///
    /// Returns `None` if a watermark voids the family: `created_at` is when the login began, and a mass revocation may
    /// have come since. A watermark that is written at the same time and not seen here voids the family later, because
    /// only the two times count. Also returns `None` if the session that the family came from was revoked, or a
    /// watermark over its subject or issuer there covers it. The family is then not live.
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>>;

    /// As [`FamilyStore::issue`], for a family with an id that another call can have used. What names the id can so be
    /// used once. A second event says if the subject has no other family of this client in the store, live or ended.
    fn issue_once(&self, grant: GrantedFamily, max_live: usize, context: EventContext) -> StoreFuture<IssuedOnce>;

    /// Reads the family of `presented`, calls `decide` and writes the decision.
    fn rotate(&self, presented: PresentedToken, decide: DecideRotation, context: EventContext)
    -> StoreFuture<Rotation>;

    /// Revokes one family, if `by` can revoke it. An expired family is still revoked while one of its access tokens may
    /// be valid.
    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome>;

    /// Records that access tokens of these generations were used. Never lowers the recorded generation.
    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()>;

    /// One family, live or ended, in the form of [`FamilyStore::families_of`].
    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>>;

    /// The families of a subject without its API keys, newest first, at most 1,000, with ended families that were not
    /// deleted yet. A family that is voided by a watermark is returned as revoked.
    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>>;

    /// One page of the families that `search` describes, without API keys, in the form of [`FamilyStore::families_of`].
    fn search(&self, search: Search) -> StoreFuture<FoundFamilies>;

    /// The clients with live sessions, those with the most first, at most `limit`. API keys are no sessions.
    fn live_clients(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<LiveClient>>;

    /// One page of API keys, in the form of [`FamilyStore::families_of`].
    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies>;

    /// Records that an API key, or a login at a provider, was used. Never lowers the recorded time. The idle time of a
    /// login at a provider counts from here. The change need not survive a loss of power.
    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()>;

    /// One page of what was ended, the newest first.
    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings>;

    /// Who revoked each of these families by itself, as far as it is known.
    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>>;
}

//! Where the truth about tokens lives.
//!
//! [`Store`] is a contract of few methods. Each is one transaction and answers with an outcome, so that a refusal can
//! still commit (a reuse revokes the family and is then refused). A method that has answered is durable: it survives the
//! loss of power. A method that failed changed nothing that anybody was told of.
//!
//! [`sqlite`] is the embedded store. What every store must do in the same way lies beside it: `watermark`,
//! `events`, [`sweep`].

mod events;
pub mod sqlite;
pub mod sweep;
mod watermark;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// What a store call gives back, some time later. The call is under way as soon as the method returns: whoever drops the
/// answer does not hear what became of it, but does not stop it either.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Told of each revocation after it is durable and before the call that made it returns. It runs on the store's own
/// thread: also when the client that asked has gone, the revocation is enforced.
pub type RevocationHook = Arc<dyn Fn(&Revocation) + Send + Sync>;

/// The decision that [`Store::rotate`] makes inside its transaction: from the family and its subject's watermark, as they
/// are at that moment, to what happens.
///
/// It must be pure: a transaction that has to be tried again asks it again, and only the last decision counts.
pub type DecideRotation = Box<dyn Fn(Option<&Family>, Option<UnixTime>, &PresentedToken) -> Rotation + Send>;

/// Who may revoke a family: the decision that [`Store::revoke_family`] makes inside its transaction.
#[derive(Clone, Debug)]
pub enum RevokedBy {
    /// Its owner, and nobody else: the family's subject must be this one.
    Owner(String),
    /// Anybody's family.
    Admin,
}

impl RevokedBy {
    pub fn may_revoke(&self, family: &Family) -> bool {
        match self {
            RevokedBy::Owner(subject) => family.subject == *subject,
            RevokedBy::Admin => true,
        }
    }

    pub const fn reason(&self) -> RevokeReason {
        match self {
            RevokedBy::Owner(_) => RevokeReason::Logout,
            RevokedBy::Admin => RevokeReason::Admin,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeOutcome {
    /// Dead now, and durably so.
    Revoked,
    /// It was dead already, and so is every access token of it; nothing was written.
    AlreadyDead,
    /// No such family, or somebody else's: the caller must not learn which.
    NotFound,
}

/// The decision that [`Store::change_signing_keys`] makes inside its transaction: from all keys as they are to all keys as
/// they shall be. As [`DecideRotation`], it may be asked again.
pub type DecideKeys = Box<dyn Fn(Vec<StoredKey>) -> Vec<StoredKey> + Send>;

/// The signing keys before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysChanged {
    pub before: Vec<StoredKey>,
    pub after: Vec<StoredKey>,
}

/// What the store tells about its events without being asked in a transaction.
#[derive(Default)]
pub struct Outbox {
    /// Notified after events are durable.
    pub written: Notify,
    /// Events that wait, roughly: those of a transaction that is under way are not counted yet.
    pub waiting: AtomicU64,
    /// Events that were not recorded, as too many were waiting.
    pub lost: AtomicU64,
}

/// Whatever a method decides is recorded, as an [`Event`] in its own transaction.
pub trait Store: Send + Sync {
    /// Writes a new family. If its subject then has more than `most_live` live ones, the least recently used are
    /// revoked in the same transaction.
    ///
    /// A family must be younger than its subject's watermark to live; the store moves `created_at` to the first whole
    /// second past it. Tokens minted for the answer must not be dated earlier than that.
    fn issue(&self, family: Family, most_live: usize, occasion: EventContext) -> StoreFuture<Family>;

    /// As [`Store::issue`], for a login that somebody began before: `None`, and nothing is written, if the log has a watermark
    /// above the sequence `known` that would have voided it. That one came while the login was on its way.
    fn issue_begun(
        &self,
        family: Family,
        most_live: usize,
        known: u64,
        occasion: EventContext,
    ) -> StoreFuture<Option<Family>>;

    /// Reads the family of `presented`, lets `decide` decide, writes what it decided.
    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        occasion: EventContext,
    ) -> StoreFuture<Rotation>;

    /// Ends one family, if `by` may. A family that has expired is still ended while an access token of it may live.
    fn revoke_family(&self, id: TokenId, by: RevokedBy, occasion: EventContext) -> StoreFuture<RevokeOutcome>;

    /// Writes a revocation of anything but a family, which is an error here. Answers its sequence.
    ///
    /// Watermarks are only ever raised. One over everything, or over a subject of this gateway's own issuer, also ends
    /// the families that are not younger; and if it is of now, those that are there and dated ahead.
    fn revoke(&self, what: Revoked, occasion: EventContext) -> StoreFuture<u64>;

    /// Notes that an access token of this generation was seen in use. Never lowers what is there.
    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()>;

    /// The families of a subject, newest first, dead ones only while their tombstones last. At most 1,000. Those that a
    /// watermark voids are answered as revoked.
    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>>;

    /// One family, dead or alive, as [`Store::families_of`] shows it.
    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>>;

    /// Every revocation with a sequence above `after` that still matters at `now`, in order.
    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>>;

    /// Deletes families and revocations that no longer matter, at most `limit` of each. Answers how many went.
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize>;

    /// Lets `decide` decide about the signing keys, the newest first, and writes what it decided.
    fn change_signing_keys(&self, decide: DecideKeys, occasion: EventContext) -> StoreFuture<KeysChanged>;

    /// Records what the store itself had no part in.
    fn record(&self, event: Event, occasion: EventContext) -> StoreFuture<()>;

    /// The oldest events that wait for their delivery, in order.
    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>>;

    /// Forgets the events up to this one.
    fn delivered(&self, through: u64) -> StoreFuture<()>;

    /// What becomes of events.
    fn outbox(&self) -> Arc<Outbox>;

    /// Can the store commit right now? Cheap enough for a readiness probe.
    fn check(&self) -> StoreFuture<()>;

    /// Finishes what is under way and lets go of whatever only one gateway may hold. Every call fails from then on.
    fn close(&self) {}
}

/// Why a store call failed, for the log and the operator.
#[derive(Clone, Debug)]
pub struct StoreError {
    pub message: String,
}

impl StoreError {
    pub fn new(message: impl Into<String>) -> Self {
        StoreError { message: message.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

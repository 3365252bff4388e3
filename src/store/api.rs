//! The interface of a store.
//!
//! Each method of [`Store`] is one transaction and returns an outcome, so that a rejection can still commit: the reuse
//! of a refresh token revokes its family, and the request is then rejected. When a method has returned `Ok`, its change
//! survives a loss of power. When it has returned an error, it has not reported a change to any caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

use crate::store::acme::AcmeEntry;
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::error::StoreError;
use crate::store::expired::Expired;
use crate::store::freshness::Freshness;
use crate::store::mark::{Mark, Marked};
use crate::store::pool::PoolStatus;
use crate::store::provider_login::{EndedLogins, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin};
use crate::store::search::{FoundFamilies, KeySearch, Search};
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason};
use crate::tokens::signing::StoredKey;
use crate::tokens::ticket_key::StoredTicketKey;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The result of a call. The operation is queued when the method returns. Dropping the future does not cancel it; the
/// caller then only does not learn the result.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

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

/// The decision of [`Store::rotate`], made inside its transaction from the family and the watermark of its subject. The
/// last argument is the time of the store, if it has a clock of its own: all gateways measure the grace period by it.
/// A new generation that gets this time as its `rotated_at` gets the time of the write, as the same clock shows it.
///
/// It must have no side effects: the store may run a transaction again, and only the last decision counts.
pub type DecideRotation =
    Box<dyn Fn(Option<&Family>, Option<UnixTime>, &PresentedToken, Option<UnixTime>) -> Rotation + Send>;

/// The decision of [`Store::change_signing_keys`], made inside its transaction: from the current keys to the new keys.
/// Like [`DecideRotation`], it must have no side effects.
pub type DecideKeys = Box<dyn Fn(Vec<StoredKey>) -> Vec<StoredKey> + Send>;

/// Who revokes a family. [`Store::revoke_family`] checks it inside its transaction.
#[derive(Clone, Debug)]
pub enum RevokedBy {
    /// The owner: the family must belong to this subject.
    Owner(String),
    /// An operator, who can revoke every family.
    Admin,
}

impl RevokedBy {
    pub fn can_revoke(&self, family: &Family) -> bool {
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
    /// The family is revoked, durably.
    Revoked,
    /// The family and all its access tokens had ended before. Nothing was written.
    AlreadyEnded,
    /// There is no such family, or it belongs to another subject. The client must not learn which.
    NotFound,
}

/// The signing keys before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysChanged {
    pub before: Vec<StoredKey>,
    pub after: Vec<StoredKey>,
}

/// Counters of audit events, readable without a transaction.
#[derive(Default)]
pub struct Outbox {
    /// Notified when events are durable.
    pub written: Notify,
    /// Number of undelivered events, which the store maintains. Events of an open transaction are not counted yet.
    pub waiting: AtomicU64,
    /// Number of events that were not recorded because the outbox was full.
    pub lost: AtomicU64,
}

/// Each method records its decision as an [`Event`] in the same transaction.
pub trait Store: Send + Sync {
    /// Writes a new family. If its subject then has more than `max_live` live families, the least recently used ones
    /// are revoked before this returns. API keys and families without refresh tokens do not count. Several logins at
    /// the same time may revoke each other, so that no caller ever learns of more live families than the limit.
    ///
    /// Returns `None` if a watermark voids the family: `created_at` is when the login began, and a mass revocation may
    /// have come since. A watermark that is written at the same time and not seen here voids the family later, because
    /// only the two times count. Also returns `None` if the session that the family came from was revoked, or a
    /// watermark over its subject or issuer there covers it. The family is then not live.
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>>;

    /// Reads the family of `presented`, calls `decide` and writes the decision.
    fn rotate(&self, presented: PresentedToken, decide: DecideRotation, context: EventContext)
    -> StoreFuture<Rotation>;

    /// Revokes one family, if `by` can revoke it. An expired family is still revoked while one of its access tokens may
    /// be valid.
    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome>;

    /// Writes a revocation of anything but a family, and returns its sequence. A family is an error.
    ///
    /// Watermarks can only be raised. A watermark over everything, over the gateway's own issuer or over one of its
    /// subjects also ends the families that are as old or older. A watermark of now or later also ends the existing
    /// families that are dated later.
    ///
    /// A session, a subject or an issuer also ends each family that came from there, with an entry of its own. A
    /// watermark ends those with an origin that is dated at or before it.
    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64>;

    /// Uses something that can be used once. Only the first use carries out `revoke`, like [`Store::revoke`], and in
    /// the same transaction.
    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked>;

    /// Returns what [`Store::mark`] would return. Uses nothing.
    fn marked(&self, mark: Mark) -> StoreFuture<Marked>;

    /// Records that access tokens of these generations were used. Never lowers the recorded generation.
    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()>;

    /// The families of a subject without its API keys, newest first, at most 1,000, with ended families that were not
    /// deleted yet. A family that is voided by a watermark is returned as revoked.
    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>>;

    /// One page of the families that `search` describes, without API keys, in the form of [`Store::families_of`].
    fn search(&self, search: Search) -> StoreFuture<FoundFamilies>;

    /// One page of API keys, in the form of [`Store::families_of`].
    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies>;

    /// Records that an API key, or a login at a provider, was used. Never lowers the recorded time. The idle time of a
    /// login at a provider counts from here. The change need not survive a loss of power.
    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()>;

    /// One family, live or ended, in the form of [`Store::families_of`].
    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>>;

    /// One page of what was ended, the newest first.
    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings>;

    /// Who revoked each of these families by itself, as far as it is known.
    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>>;

    /// The revocations with a sequence above `after` that still matter at `now`, in order: at most
    /// [`MAX_REVOCATIONS`].
    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>>;

    /// Deletes families, revocations and watermarks that no longer matter, at most `limit` of each. Returns how many
    /// rows were deleted. Logins of which the provider is still to be told stay for a day of attempts, see
    /// `provider_login`.
    /// Two gateways that sweep at the same time delete each row once.
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize>;

    /// What [`Store::sweep`] has still to delete. Counts at most `limit` rows of each table. Logins that no gateway has
    /// tried do not count.
    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired>;

    /// Writes a new family and its login at a provider, as [`Store::issue`] does. Then ends the session that it
    /// replaces, if there is one, for its owner.
    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>>;

    /// A login at a provider with its family, live or ended, in the form of [`Store::families_of`].
    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>>;

    /// Records that the browser has used the session. Does nothing if it has before, or the session has ended.
    fn claim_login(&self, id: TokenId, at: UnixTime) -> StoreFuture<()>;

    /// Lets `holder` alone refresh the tokens of this version until `until`, or until it has saved them. It can call
    /// again for more time.
    fn lease_login(
        &self,
        id: TokenId,
        version: u64,
        holder: [u8; 16],
        now: UnixTime,
        until: UnixTime,
    ) -> StoreFuture<LoginLease>;

    /// Writes refreshed tokens. The version must be newer than that in the store; its lease may have ended. Also writes
    /// what is renewed with them, which ends the lease of `holder`.
    fn save_login(
        &self,
        id: TokenId,
        holder: [u8; 16],
        refreshed: RefreshedLogin,
        context: EventContext,
    ) -> StoreFuture<SavedLogin>;

    /// Makes the live logins that came from this session, subject or issuer due at `at`, so that their next use
    /// refreshes them. Those of a subject or an issuer only if they are dated at or before its time. Not those without
    /// a refresh token, which are never due. Returns those that were due later.
    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>>;

    /// Returns live logins with their families, if the lease of the login has ended because its holder was killed
    /// before it saved the tokens. A store of one gateway ends all leases when it is opened. A holder that gives up
    /// leases until the start of time.
    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>>;

    /// Logins at this provider with a session that has ended, so that the caller revokes their tokens there. Ends the
    /// sessions that were not claimed in time. A login is returned again after a minute, unless it was forgotten; not
    /// while its tokens are being refreshed. There may be more than are returned.
    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins>;

    /// Deletes a login after its tokens of this version were revoked. One that has newer tokens stays. Its family stays
    /// as it is.
    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()>;

    /// Calls `decide` with the signing keys, newest first, and writes the decision.
    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged>;

    /// The entries of which the version is not one of these: those that others have changed.
    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>>;

    /// Writes an entry with the next version, or deletes it if it has no content. Returns false, and changes nothing,
    /// if the entry in the store does not have the version before: another gateway has changed it.
    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool>;

    /// Records an event that no other method of the store records.
    fn record(&self, event: Event, context: EventContext) -> StoreFuture<()>;

    /// The oldest undelivered events, in order.
    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>>;

    /// Deletes the events with these sequences. Not all up to the last one: a transaction with a lower sequence may
    /// commit later, and its event was not delivered then.
    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()>;

    fn outbox(&self) -> Arc<Outbox>;

    /// The keys of TLS session tickets for the window of `candidate` and the one before, newest first. Adds `candidate`
    /// if its window has no key. Empty if the store belongs to one gateway, which keeps such keys in memory.
    fn ticket_keys(&self, _candidate: StoredTicketKey) -> StoreFuture<Vec<StoredTicketKey>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// How new the knowledge of what other gateways write is. `None` if there are no others.
    fn freshness(&self) -> Option<Arc<Freshness>> {
        None
    }

    /// What its connections do now. `None` if there are none.
    fn pool(&self) -> Option<Arc<PoolStatus>> {
        None
    }

    /// Takes a lease for some seconds if it is free, or renews it. Returns true if this gateway holds it: one gateway
    /// at a time does the work with this name. Always true if the store belongs to one gateway.
    fn hold_lease(&self, _name: String) -> StoreFuture<bool> {
        Box::pin(async { Ok(true) })
    }

    /// Fails if the store cannot commit right now. After `Ok`, what was visible before is as durable as a change of
    /// this call.
    fn check(&self) -> StoreFuture<()>;

    /// As [`Store::check`], for a readiness probe. Also fails if other calls have just failed because the disk is full
    /// or broken: the change of a check may be too small to notice it.
    fn probe(&self) -> StoreFuture<()>;

    /// Finishes the queued calls and releases the lock that only one gateway can hold. Every later call fails.
    fn close(&self) {}
}

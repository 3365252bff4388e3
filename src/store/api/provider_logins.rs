//! The part of a store for logins at providers.

use crate::store::api::future::StoreFuture;
use crate::store::provider_login::{EndedLogins, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Logins at providers. Each has a family.
pub trait ProviderLoginStore: Send + Sync {
    /// Writes a new family and its login at a provider, as [`FamilyStore::issue`](crate::store::FamilyStore::issue)
    /// does. Then ends the family that it replaces, if there is one, for its owner.
    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>>;

    /// A login at a provider with its family, live or ended, in the form of
    /// [`FamilyStore::families_of`](crate::store::FamilyStore::families_of).
    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>>;

    /// Records that the browser has used its handle. Does nothing if it has before, or the family has ended.
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

    /// Logins at this provider with a family that has ended, so that the caller revokes their tokens there. Ends the
    /// families that were not claimed in time. A login is returned again after a minute, unless it was forgotten; not
    /// while its tokens are being refreshed. There may be more than are returned.
    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins>;

    /// Deletes a login after its tokens of this version were revoked. One that has newer tokens stays. Its family stays
    /// as it is.
    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()>;
}

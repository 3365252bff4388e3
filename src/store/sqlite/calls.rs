//! The calls of the store: each is one operation.

use std::sync::Arc;
use std::time::Instant;

use super::{
    SqliteStore, acme, api_keys, audit, endings, families, maintenance, marks, provider_logins, provider_logouts,
    revocations, search, signing_keys,
};
use crate::store::acme::AcmeEntry;
use crate::store::api::{
    AcmeStore, AuditStore, DecideKeys, DecideRotation, FamilyStore, IssuedOnce, KeyStore, KeysChanged, MarkStore,
    Outbox, ProviderLoginStore, RevocationStore, RevokeOutcome, RevokedBy, StoreFuture, StoreUpkeep,
};
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::expired::Expired;
use crate::store::late::CallTime;
use crate::store::mark::{Mark, Marked};
use crate::store::provider_login::{EndedLogins, Lease, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin};
use crate::store::search::{FoundFamilies, KeySearch, LiveClient, Search};
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

impl FamilyStore for SqliteStore {
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| {
            call.check(batch.limits.timeout)?;
            families::issue(batch, &family, max_live, &context)
        })
    }

    fn issue_once(&self, grant: GrantedFamily, max_live: usize, context: EventContext) -> StoreFuture<IssuedOnce> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| {
            call.check(batch.limits.timeout)?;
            families::issue_once(batch, &grant, max_live, call, &context)
        })
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        context: EventContext,
    ) -> StoreFuture<Rotation> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| families::rotate(batch, &presented, &decide, call, &context))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome> {
        self.writer.submit(move |batch| families::revoke_family(batch, id, &by, &context))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.writer.submit(move |batch| families::confirm(batch, &seen))
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.writer.submit(move |batch| families::show(batch, id))
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.writer.submit(move |batch| families::of_subject(batch, &subject))
    }

    fn search(&self, search: Search) -> StoreFuture<FoundFamilies> {
        self.writer.submit(move |batch| search::search(batch, &search))
    }

    fn live_clients(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<LiveClient>> {
        self.writer.submit(move |batch| search::live_clients(batch, now, limit))
    }

    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies> {
        self.writer.submit(move |batch| api_keys::search(batch, &search))
    }

    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.writer.submit(move |batch| api_keys::used(batch, id, at))
    }

    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings> {
        self.writer.submit(move |batch| endings::search(batch, &search))
    }

    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>> {
        self.writer.submit(move |batch| endings::revokers(batch, &ids))
    }
}

impl RevocationStore for SqliteStore {
    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64> {
        self.writer.submit(move |batch| revocations::revoke(batch, &what, &context))
    }

    fn revocations_since(&self, after: u64) -> StoreFuture<Vec<Revocation>> {
        self.writer.submit(move |batch| revocations::since(batch, after))
    }
}

impl MarkStore for SqliteStore {
    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked> {
        self.writer.submit(move |batch| marks::mark(batch, &mark, &revoke, &context))
    }

    fn marked(&self, mark: Mark) -> StoreFuture<Marked> {
        self.writer.submit(move |batch| marks::find(batch, &mark))
    }
}

impl ProviderLoginStore for SqliteStore {
    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| {
            call.check(batch.limits.timeout)?;
            provider_logins::begin(batch, &family, &login, replaces, max_live, &context)
        })
    }

    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>> {
        self.writer
            .submit(move |batch| Ok(provider_logins::find(batch, id)?.map(|(family, stored)| (family, stored.login))))
    }

    fn claim_login(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.writer.submit(move |batch| provider_logins::claim(batch, id, at))
    }

    fn lease_login(
        &self,
        id: TokenId,
        version: u64,
        holder: [u8; 16],
        now: UnixTime,
        until: UnixTime,
    ) -> StoreFuture<LoginLease> {
        let wanted = Lease { holder, until };
        self.writer.submit(move |batch| provider_logins::lease(batch, id, version, wanted, now))
    }

    fn save_login(
        &self,
        id: TokenId,
        holder: [u8; 16],
        refreshed: RefreshedLogin,
        context: EventContext,
    ) -> StoreFuture<SavedLogin> {
        self.writer.submit(move |batch| provider_logins::save(batch, id, holder, &refreshed, &context))
    }

    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>> {
        self.writer.submit(move |batch| provider_logins::make_due(batch, &of, at))
    }

    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>> {
        self.writer.submit(move |batch| provider_logins::interrupted(batch, now, limit))
    }

    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins> {
        self.writer.submit(move |batch| provider_logouts::to_revoke(batch, &provider, now, limit))
    }

    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()> {
        self.writer.submit(move |batch| provider_logouts::forget(batch, id, version))
    }
}

impl KeyStore for SqliteStore {
    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged> {
        self.writer.submit(move |batch| signing_keys::change(batch, &decide, &context))
    }
}

impl AuditStore for SqliteStore {
    fn record(&self, event: Event, context: EventContext) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::record(batch, &event, &context))
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.writer.submit(move |batch| audit::undelivered(batch, limit))
    }

    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::delivered(batch, &sequences))
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }
}

impl AcmeStore for SqliteStore {
    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>> {
        self.writer.submit(move |batch| acme::changed(batch, &known))
    }

    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool> {
        self.writer.submit(move |batch| acme::save(batch, &entry))
    }
}

impl StoreUpkeep for SqliteStore {
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        let untried_since = self.sweeps.untried_since(now);
        self.writer.submit(move |batch| maintenance::sweep(batch, now, untried_since, limit))
    }

    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired> {
        self.writer.submit(move |batch| maintenance::expired(batch, now, limit))
    }

    fn check(&self) -> StoreFuture<()> {
        self.writer.submit(|batch| maintenance::check(batch))
    }

    fn probe(&self) -> StoreFuture<()> {
        let failures = self.writer.disk_failures();
        if let Some(error) = failures.recent() {
            return Box::pin(async { Err(error) });
        }
        let began = Instant::now();
        let check = self.check();
        Box::pin(async move {
            check.await?;
            failures.end(began);
            Ok(())
        })
    }

    fn close(&self) {
        self.writer.close();
    }
}

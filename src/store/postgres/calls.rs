//! The calls of the store: each is one operation.

use std::sync::Arc;

use super::lane::Lane;
use super::postgres_store::PostgresStore;
use super::{
    acme, api_keys, audit, due_logins, endings, families, issue, issue_once, leases, maintenance, marks, probe,
    provider_logins, provider_logouts, revocations, rotation, search, signing_keys, tickets,
};
use crate::store::acme::AcmeEntry;
use crate::store::api::{
    AcmeStore, AuditStore, DecideKeys, DecideRotation, FamilyStore, IssuedOnce, KeyStore, KeysChanged, MarkStore,
    Outbox, ProviderLoginStore, RevocationStore, RevokeOutcome, RevokedBy, StoreFuture, StoreUpkeep,
};
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::expired::Expired;
use crate::store::freshness::Freshness;
use crate::store::mark::{Mark, Marked};
use crate::store::pool::PoolStatus;
use crate::store::provider_login::{EndedLogins, Lease, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin};
use crate::store::search::{FoundFamilies, KeySearch, LiveClient, Search};
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::ticket_key::StoredTicketKey;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

impl FamilyStore for PostgresStore {
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(family.id), issue::Issue::new(family, max_live, context))
    }

    fn issue_once(&self, grant: GrantedFamily, max_live: usize, context: EventContext) -> StoreFuture<IssuedOnce> {
        let lane = Lane::Family(grant.family.id);
        self.run(lane, issue_once::IssueOnce(issue::Issue::of_grant(grant, max_live, context)))
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        context: EventContext,
    ) -> StoreFuture<Rotation> {
        let lane = Lane::Family(presented.token_id);
        self.run(lane, rotation::Rotate::new(presented, decide, context, self.shared.clock.now()))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome> {
        let revoked = self.run(Lane::Family(id), families::RevokeFamily::new(id, by, context));
        // Also if it had ended before: the caller may repeat a call that was not answered.
        self.when_applied(revoked, |outcome| (*outcome != RevokeOutcome::NotFound).then_some(0))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.run(Lane::Any, families::Confirm { seen })
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(id), families::Show { id })
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.run(Lane::Any, families::OfSubject { subject })
    }

    fn search(&self, search: Search) -> StoreFuture<FoundFamilies> {
        self.run(Lane::Any, search::SearchFamilies { search })
    }

    fn live_clients(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<LiveClient>> {
        self.run(Lane::Any, search::LiveClients { now, limit })
    }

    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies> {
        self.run(Lane::Any, api_keys::SearchKeys { search })
    }

    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.run(Lane::Any, api_keys::Used { id, at })
    }

    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings> {
        self.run(Lane::Any, endings::SearchEndings { search })
    }

    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>> {
        self.run(Lane::Any, endings::FindRevokers { ids })
    }
}

impl RevocationStore for PostgresStore {
    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64> {
        let revoked = self.run(Lane::Log, revocations::Revoke::new(what, context));
        self.when_applied(revoked, |sequence| Some(*sequence))
    }

    fn revocations_since(&self, after: u64) -> StoreFuture<Vec<Revocation>> {
        self.run(Lane::Any, revocations::Since { after })
    }
}

impl MarkStore for PostgresStore {
    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked> {
        let lane = if revoke.is_empty() { Lane::Any } else { Lane::Log };
        let marked = self.run(lane, marks::UseMark::new(mark, revoke, &context));
        let marked = self.when_applied(marked, |(_, sequence)| *sequence);
        Box::pin(async { marked.await.map(|(marked, _)| marked) })
    }

    fn marked(&self, mark: Mark) -> StoreFuture<Marked> {
        self.run(Lane::Any, marks::FindMark { mark })
    }
}

impl ProviderLoginStore for PostgresStore {
    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>> {
        let lane = Lane::Family(family.id);
        let issue = issue::Issue::with_login(family, login, max_live, context.clone());
        self.run(lane, provider_logins::BeginLogin::new(issue, replaces, context))
    }

    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>> {
        self.run(Lane::Family(id), provider_logins::ShowLogin { id })
    }

    fn claim_login(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.run(Lane::Family(id), provider_logins::ClaimLogin { id, at })
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
        self.run(Lane::Family(id), provider_logins::LeaseLogin { id, version, wanted, now })
    }

    fn save_login(
        &self,
        id: TokenId,
        holder: [u8; 16],
        refreshed: RefreshedLogin,
        context: EventContext,
    ) -> StoreFuture<SavedLogin> {
        self.run(Lane::Family(id), provider_logins::SaveLogin::new(id, holder, refreshed, context))
    }

    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>> {
        self.run(Lane::Any, due_logins::MakeDue { of, at })
    }

    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>> {
        self.run(Lane::Upkeep, provider_logins::InterruptedLogins { now, limit })
    }

    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins> {
        self.run(Lane::Upkeep, provider_logouts::LoginsToRevoke { provider, now, limit })
    }

    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()> {
        self.run(Lane::Family(id), provider_logouts::ForgetLogin { id, version })
    }
}

impl KeyStore for PostgresStore {
    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged> {
        self.run(Lane::Log, signing_keys::ChangeSigningKeys::new(decide, context))
    }

    fn ticket_keys(&self, candidate: StoredTicketKey) -> StoreFuture<Vec<StoredTicketKey>> {
        self.run(Lane::Upkeep, tickets::UseTicketKeys { candidate })
    }
}

impl AuditStore for PostgresStore {
    fn record(&self, event: Event, context: EventContext) -> StoreFuture<()> {
        self.run(Lane::Any, audit::Record::new(&event, &context))
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.run(Lane::Upkeep, audit::Undelivered { limit })
    }

    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()> {
        self.run(Lane::Upkeep, audit::Delivered { sequences })
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }
}

impl AcmeStore for PostgresStore {
    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>> {
        self.run(Lane::Upkeep, acme::ReadChanged { known })
    }

    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool> {
        self.run(Lane::Upkeep, acme::Save { entry })
    }
}

impl StoreUpkeep for PostgresStore {
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.run(Lane::Upkeep, maintenance::Sweep { now, limit })
    }

    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired> {
        self.run(Lane::Upkeep, maintenance::FindExpired { now, limit })
    }

    fn check(&self) -> StoreFuture<()> {
        self.run(Lane::Any, probe::Check)
    }

    fn probe(&self) -> StoreFuture<()> {
        let connections = self.driver.connections();
        match connections.disk_failures().recent() {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.run(Lane::Any, probe::Probe { connections }),
        }
    }

    fn freshness(&self) -> Option<Arc<Freshness>> {
        Some(self.freshness.clone())
    }

    fn pool(&self) -> Option<Arc<PoolStatus>> {
        Some(self.driver.connections().status())
    }

    fn hold_lease(&self, name: String) -> StoreFuture<bool> {
        self.run(Lane::Upkeep, leases::HoldLease { name })
    }

    fn close(&self) {
        self.shut_down();
    }
}

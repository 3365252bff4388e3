//! The store behind a gate: calls wait until the test releases them. So the test chooses their order, which calls share
//! a transaction, and which are lost in a crash.

use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};

use bearward::store::{
    AcmeEntry, AcmeStore, AuditStore, DecideKeys, DecideRotation, EndedLogins, EndingSearch, Expired, FamilyStore,
    FoundEndings, FoundFamilies, IssuedOnce, KeySearch, KeyStore, KeysChanged, LiveClient, LoginLease, Mark, MarkStore,
    Marked, Outbox, ProviderLogin, ProviderLoginStore, RefreshedLogin, RevocationHook, RevocationStore, RevokeOutcome,
    RevokedBy, Revoker, SavedLogin, Search, Store, StoreError, StoreFuture, StoreOptions, StoreUpkeep,
};
use bearward::tokens::audit_event::{Event, EventContext, Recorded};
use bearward::tokens::authorization::grant::GrantedFamily;
use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::PresentedToken;
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use bearward::types::reject::Reason;
use tokio::sync::oneshot;

use crate::store::suite::records::Place;
use crate::support::given::{ISSUER, LIFETIMES, LOGIN, TIMEOUT, login, token};

type Call = Box<dyn FnOnce(&dyn Store) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub(super) struct Gate {
    store: Box<dyn Store>,
    waiting: Mutex<Vec<Call>>,
}

impl Gate {
    pub(super) fn open(place: &dyn Place, enforce: RevocationHook) -> Gate {
        let settings = StoreOptions {
            issuer: ISSUER.into(),
            longest_life: LIFETIMES.access,
            longest_family: LIFETIMES.absolute,
            timeout: TIMEOUT,
            audit: 0,
        };
        Gate { store: place.open_with(settings, enforce), waiting: Mutex::default() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().expect("unpoisoned").len()
    }

    /// Releases the first `count` calls together, and waits until they are done. The embedded store runs them in one
    /// transaction.
    pub(super) async fn release(&self, count: usize) {
        let calls: Vec<_> = self.waiting.lock().expect("unpoisoned").drain(..count).collect();
        let hold = (count > 1).then(|| self.hold_store());
        let responses: Vec<_> = calls.into_iter().map(|call| call(&*self.store)).collect();
        drop(hold);
        for response in responses {
            response.await;
        }
    }

    /// Blocks the store's thread until the result is dropped. Calls in the meantime become one batch.
    fn hold_store(&self) -> mpsc::Sender<()> {
        let (hold, dropped) = mpsc::channel();
        let (reached, blocked) = mpsc::channel();
        let (reached, dropped) = (Mutex::new(reached), Mutex::new(dropped));
        let wait = move |_: Option<&Family>, _, _: &PresentedToken, _| {
            let _ = reached.lock().expect("unpoisoned").send(());
            let _ = dropped.lock().expect("unpoisoned").recv();
            Rotation::Rejected(Reason::GrantUnknown)
        };
        drop(self.store.rotate(token(&login("unused", LOGIN), 1), Box::new(wait), LOGIN.into()));
        blocked.recv().expect("the store's thread runs");
        hold
    }

    fn wait<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let (caller, response) = oneshot::channel();
        let call: Call = Box::new(|store| {
            let response = call(store);
            Box::pin(async move { drop(caller.send(response.await)) })
        });
        self.waiting.lock().expect("unpoisoned").push(call);
        Box::pin(async { response.await.unwrap_or_else(|_| Err(StoreError::new("killed"))) })
    }
}

impl FamilyStore for Gate {
    fn issue(&self, family: Family, most_live: usize, occasion: EventContext) -> StoreFuture<Option<Family>> {
        self.wait(move |store| store.issue(family, most_live, occasion))
    }

    fn issue_once(&self, grant: GrantedFamily, most_live: usize, occasion: EventContext) -> StoreFuture<IssuedOnce> {
        self.wait(move |store| store.issue_once(grant, most_live, occasion))
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        occasion: EventContext,
    ) -> StoreFuture<Rotation> {
        self.wait(move |store| store.rotate(presented, decide, occasion))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, occasion: EventContext) -> StoreFuture<RevokeOutcome> {
        self.wait(move |store| store.revoke_family(id, by, occasion))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.wait(move |store| store.confirm(seen))
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.store.family(id)
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.store.families_of(subject)
    }

    fn search(&self, search: Search) -> StoreFuture<FoundFamilies> {
        self.store.search(search)
    }

    fn live_clients(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<LiveClient>> {
        self.store.live_clients(now, limit)
    }

    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies> {
        self.store.api_keys(search)
    }

    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.store.used(id, at)
    }

    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings> {
        self.store.endings(search)
    }

    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>> {
        self.store.revokers(ids)
    }
}

impl RevocationStore for Gate {
    fn revoke(&self, what: Revoked, occasion: EventContext) -> StoreFuture<u64> {
        self.wait(move |store| store.revoke(what, occasion))
    }

    fn revocations_since(&self, after: u64) -> StoreFuture<Vec<Revocation>> {
        self.store.revocations_since(after)
    }
}

impl MarkStore for Gate {
    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, occasion: EventContext) -> StoreFuture<Marked> {
        self.wait(move |store| store.mark(mark, revoke, occasion))
    }

    fn marked(&self, mark: Mark) -> StoreFuture<Marked> {
        self.wait(move |store| store.marked(mark))
    }
}

impl ProviderLoginStore for Gate {
    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>> {
        self.store.begin_login(family, login, replaces, max_live, context)
    }

    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>> {
        self.store.provider_login(id)
    }

    fn claim_login(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.store.claim_login(id, at)
    }

    fn lease_login(
        &self,
        id: TokenId,
        version: u64,
        holder: [u8; 16],
        now: UnixTime,
        until: UnixTime,
    ) -> StoreFuture<LoginLease> {
        self.store.lease_login(id, version, holder, now, until)
    }

    fn save_login(
        &self,
        id: TokenId,
        holder: [u8; 16],
        refreshed: RefreshedLogin,
        context: EventContext,
    ) -> StoreFuture<SavedLogin> {
        self.store.save_login(id, holder, refreshed, context)
    }

    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>> {
        self.store.make_logins_due(of, at)
    }

    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>> {
        self.store.interrupted_logins(now, limit)
    }

    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins> {
        self.store.logins_to_revoke(provider, now, limit)
    }

    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()> {
        self.store.forget_login(id, version)
    }
}

impl KeyStore for Gate {
    fn change_signing_keys(&self, decide: DecideKeys, occasion: EventContext) -> StoreFuture<KeysChanged> {
        self.store.change_signing_keys(decide, occasion)
    }
}

impl AuditStore for Gate {
    fn record(&self, event: Event, occasion: EventContext) -> StoreFuture<()> {
        self.wait(move |store| store.record(event, occasion))
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.store.undelivered(limit)
    }

    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()> {
        self.store.delivered(sequences)
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.store.outbox()
    }
}

impl AcmeStore for Gate {
    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>> {
        self.store.acme_entries(known)
    }

    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool> {
        self.store.save_acme_entry(entry)
    }
}

impl StoreUpkeep for Gate {
    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.store.sweep(now, limit)
    }

    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired> {
        self.store.expired(now, limit)
    }

    fn check(&self) -> StoreFuture<()> {
        self.store.check()
    }

    fn probe(&self) -> StoreFuture<()> {
        self.store.probe()
    }
}

//! The real store behind a gate: what is asked of it waits until it is let through, so that whoever holds the gate decides
//! what comes before what, what shares a transaction, and what a crash destroys.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};

use bearward::store::sqlite::{Settings, SqliteStore};
use bearward::store::{
    DecideKeys, DecideRotation, KeysChanged, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store, StoreError,
    StoreFuture,
};
use bearward::tokens::audit_event::{Event, EventContext, Recorded};
use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::PresentedToken;
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use bearward::types::reject::Reason;
use tokio::sync::oneshot;

use crate::store::given::{ISSUER, LIFETIMES, LOGIN, login, token};

type Call = Box<dyn FnOnce(&SqliteStore) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub(super) struct Gate {
    store: SqliteStore,
    waiting: Mutex<Vec<Call>>,
}

impl Gate {
    pub(super) fn open(path: &Path, enforce: RevocationHook) -> Gate {
        let settings = Settings {
            issuer: ISSUER.into(),
            longest_life: LIFETIMES.access,
            longest_family: LIFETIMES.absolute,
            audit: 0,
        };
        Gate { store: SqliteStore::open(path, settings, enforce).expect("opens"), waiting: Mutex::default() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().expect("unpoisoned").len()
    }

    /// Lets the first `count` calls through, as one transaction. They are answered when the answer is ready.
    pub(super) async fn let_through(&self, count: usize) {
        let calls: Vec<_> = self.waiting.lock().expect("unpoisoned").drain(..count).collect();
        let plug = (count > 1).then(|| self.plug());
        let responses: Vec<_> = calls.into_iter().map(|call| call(&self.store)).collect();
        drop(plug);
        for response in responses {
            response.await;
        }
    }

    /// Keeps the store's thread in a decision until this is dropped; what is asked for meanwhile is one batch.
    fn plug(&self) -> mpsc::Sender<()> {
        let (plug, pulled) = mpsc::channel();
        let (reached, arrived) = mpsc::channel();
        let (reached, pulled) = (Mutex::new(reached), Mutex::new(pulled));
        let wait = move |_: Option<&Family>, _, _: &PresentedToken| {
            let _ = reached.lock().expect("unpoisoned").send(());
            let _ = pulled.lock().expect("unpoisoned").recv();
            Rotation::Rejected(Reason::GrantUnknown)
        };
        drop(self.store.rotate(token(&login("nobody", LOGIN), 1), Box::new(wait), LOGIN.into()));
        arrived.recv().expect("the store's thread runs");
        plug
    }

    fn wait<T: Send + 'static>(
        &self,
        call: impl FnOnce(&SqliteStore) -> StoreFuture<T> + Send + 'static,
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

impl Store for Gate {
    fn issue(&self, family: Family, most_live: usize, occasion: EventContext) -> StoreFuture<Family> {
        self.wait(move |store| store.issue(family, most_live, occasion))
    }

    fn issue_unless_revoked_since(
        &self,
        known: u64,
        family: Family,
        most_live: usize,
        occasion: EventContext,
    ) -> StoreFuture<Option<Family>> {
        self.wait(move |store| store.issue_unless_revoked_since(known, family, most_live, occasion))
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

    fn revoke(&self, what: Revoked, occasion: EventContext) -> StoreFuture<u64> {
        self.wait(move |store| store.revoke(what, occasion))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.wait(move |store| store.confirm(seen))
    }

    fn record(&self, event: Event, occasion: EventContext) -> StoreFuture<()> {
        self.wait(move |store| store.record(event, occasion))
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.store.families_of(subject)
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.store.family(id)
    }

    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>> {
        self.store.revocations_since(after, now)
    }

    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.store.sweep(now, limit)
    }

    fn change_signing_keys(&self, decide: DecideKeys, occasion: EventContext) -> StoreFuture<KeysChanged> {
        self.store.change_signing_keys(decide, occasion)
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.store.undelivered(limit)
    }

    fn delivered(&self, through: u64) -> StoreFuture<()> {
        self.store.delivered(through)
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.store.outbox()
    }

    fn check(&self) -> StoreFuture<()> {
        self.store.check()
    }
}

//! The shared store: a PostgreSQL database for any number of gateways.
//!
//! `settings` says where the database is, `connect` and `tls` open one connection, `session_check` tests it, and
//! `session` runs statements on it. `connections` keeps several of them open, with `backoff`, and repeats operations,
//! `driver` owns the thread that does all of this. With several hosts, `primary` knows which one to use, `watch` looks
//! which one was promoted, and `timeline` tells it from the primary of before. `error` says what a failed statement
//! means.
//!
//! `schema` creates and migrates the tables, `migrate` does it for large ones, `sequences` repairs those of a copy,
//! `rows` converts values. `issue`, `families`, `api_keys`, `search`, `rotation`, `revocations`, `origins`, `marks`,
//! `provider_logins`, `provider_logouts`, `endings`, `signing_keys`, `acme`, `audit`, `probe` and `maintenance` are the
//! operations: each is a value that can run again. `append` writes the log of revocations for all of them, `clock`
//! knows the time of the database, `gather` makes one statement of several calls, `attempts` repeats what a lock
//! prevents, `outbox` writes their events, and `enforcement` passes revocations on. `follower` reads what other
//! gateways append, `replicas` and `leases` let them know of each other. `open` opens the store and starts its tasks.
//!
//! No transaction is open while the gateway waits for a response of the database: each change is one statement. A
//! gateway that is stopped or cut off therefore holds no lock.

mod acme;
mod api_keys;
mod append;
mod attempts;
mod audit;
mod backoff;
mod check;
mod clock;
mod connect;
mod connections;
mod database;
mod driver;
mod due_logins;
mod endings;
mod enforcement;
mod error;
mod families;
mod follower;
mod gather;
mod import;
mod import_rows;
pub mod inspect;
mod issue;
mod leases;
mod lookup;
mod maintenance;
mod mark_rows;
mod marks;
mod migrate;
mod open;
mod operation;
mod origins;
mod outbox;
mod primary;
mod probe;
mod provider_logins;
mod provider_logouts;
mod replicas;
mod revocations;
mod roots;
mod rotation;
mod rotations;
mod rows;
mod schema;
mod search;
mod sequences;
mod session;
mod session_check;
mod settings;
mod signing_keys;
mod tickets;
mod timeline;
mod tls;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use check::{Finding, check};
pub use database::Database;
pub use import::Import;
pub use migrate::{MigrationProgress, migrate};
pub use roots::{RootCheck, RootsFound, compare_roots};
pub use settings::{Host, OnStale, PasswordSource, Settings, Target, UrlError, is_schema_name};
pub use tls::Tls;

use crate::store::acme::AcmeEntry;
use crate::store::api::{
    DecideKeys, DecideRotation, KeysChanged, Outbox, RevokeOutcome, RevokedBy, Store, StoreFuture,
};
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::expired::Expired;
use crate::store::freshness::Freshness;
use crate::store::mark::{Mark, Marked};
use crate::store::pool::PoolStatus;
use crate::store::provider_login::{EndedLogins, Lease, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin};
use crate::store::search::{FoundFamilies, KeySearch, Search};
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::ticket_key::StoredTicketKey;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use connections::Lane;
use driver::Driver;
use operation::{Operation, Shared};
use session::Session;

/// The shared store. Dropping it finishes the queued operations and closes the connections, which can take as long as
/// the database needs.
pub struct PostgresStore {
    driver: Driver,
    shared: Arc<Shared>,
    outbox: Arc<Outbox>,
    freshness: Arc<Freshness>,
}

impl PostgresStore {
    /// With `store.strict`, see [`replicas::when_applied`].
    fn when_applied<T: Send + 'static>(
        &self,
        revoked: StoreFuture<T>,
        sequence: fn(&T) -> Option<u64>,
    ) -> StoreFuture<T> {
        match self.freshness.is_strict() {
            true => replicas::when_applied(&self.driver, self.freshness.max_staleness(), revoked, sequence),
            false => revoked,
        }
    }

    /// Other gateways need not wait for this one any more.
    fn leave(&self) {
        if !self.shared.has_left.swap(true, Ordering::AcqRel) {
            // Closing waits for it.
            drop(self.run(Lane::Upkeep, replicas::Leave));
        }
    }

    fn run<O: Operation>(&self, lane: Lane, operation: O) -> StoreFuture<O::Output> {
        let (shared, operation) = (self.shared.clone(), Arc::new(operation));
        let run = move |session: Session| {
            let (shared, operation) = (shared.clone(), operation.clone());
            async move { operation.run(&shared, &session).await }
        };
        self.driver.submit(lane, O::KIND, run)
    }
}

impl Store for PostgresStore {
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(family.id), issue::Issue::new(family, max_live, context))
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

    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64> {
        let revoked = self.run(Lane::Log, revocations::Revoke::new(what, context));
        self.when_applied(revoked, |sequence| Some(*sequence))
    }

    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked> {
        let lane = if revoke.is_empty() { Lane::Any } else { Lane::Log };
        let marked = self.run(lane, marks::UseMark::new(mark, revoke, &context));
        let marked = self.when_applied(marked, |(_, sequence)| *sequence);
        Box::pin(async { marked.await.map(|(marked, _)| marked) })
    }

    fn marked(&self, mark: Mark) -> StoreFuture<Marked> {
        self.run(Lane::Any, marks::FindMark { mark })
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.run(Lane::Any, families::Confirm { seen })
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.run(Lane::Any, families::OfSubject { subject })
    }

    fn search(&self, search: Search) -> StoreFuture<FoundFamilies> {
        self.run(Lane::Any, search::SearchFamilies { search })
    }

    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies> {
        self.run(Lane::Any, api_keys::SearchKeys { search })
    }

    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.run(Lane::Any, api_keys::Used { id, at })
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(id), families::Show { id })
    }

    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings> {
        self.run(Lane::Any, endings::SearchEndings { search })
    }

    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>> {
        self.run(Lane::Any, endings::FindRevokers { ids })
    }

    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>> {
        self.run(Lane::Any, revocations::Since { after, now })
    }

    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.run(Lane::Upkeep, maintenance::Sweep { now, limit })
    }

    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired> {
        self.run(Lane::Upkeep, maintenance::FindExpired { now, limit })
    }

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

    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>> {
        self.run(Lane::Any, due_logins::MakeDue { of, at })
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

    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>> {
        self.run(Lane::Upkeep, provider_logins::InterruptedLogins { now, limit })
    }

    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins> {
        self.run(Lane::Upkeep, provider_logouts::LoginsToRevoke { provider, now, limit })
    }

    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()> {
        self.run(Lane::Family(id), provider_logouts::ForgetLogin { id, version })
    }

    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged> {
        self.run(Lane::Log, signing_keys::ChangeSigningKeys::new(decide, context))
    }

    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>> {
        self.run(Lane::Upkeep, acme::ReadChanged { known })
    }

    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool> {
        self.run(Lane::Upkeep, acme::Save { entry })
    }

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

    fn ticket_keys(&self, candidate: StoredTicketKey) -> StoreFuture<Vec<StoredTicketKey>> {
        self.run(Lane::Upkeep, tickets::UseTicketKeys { candidate })
    }

    fn hold_lease(&self, name: String) -> StoreFuture<bool> {
        self.run(Lane::Upkeep, leases::HoldLease { name })
    }

    fn freshness(&self) -> Option<Arc<Freshness>> {
        Some(self.freshness.clone())
    }

    fn pool(&self) -> Option<Arc<PoolStatus>> {
        Some(self.driver.connections().status())
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

    fn close(&self) {
        self.leave();
        self.driver.close();
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.close();
    }
}

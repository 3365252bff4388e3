//! The shared store: a PostgreSQL database for any number of gateways.
//!
//! `settings` says where the database is, `connect` and `tls` open one connection, and `session` runs statements on it.
//! `connections` keeps several of them open and repeats operations, `driver` owns the thread that does all of this.
//! `error` says what a failed statement means.
//!
//! `schema` creates and migrates the tables, `rows` converts values. `families`, `rotation`, `revocations`,
//! `signing_keys`, `audit` and `maintenance` are the operations: each is a value that can run again. `append` writes
//! the log of revocations for all of them, `outbox` their events, and `enforcement` passes revocations on.
//!
//! No transaction is open while the gateway waits for a response of the database: each change is one statement. A
//! gateway that is stopped or cut off therefore holds no lock.

// Until the follower uses all of it.
#![allow(dead_code)]

mod append;
mod audit;
mod check;
mod connect;
mod connections;
mod driver;
mod enforcement;
mod error;
mod families;
mod import;
mod import_rows;
pub mod inspect;
mod maintenance;
mod operation;
mod outbox;
mod revocations;
mod roots;
mod rotation;
mod rows;
mod schema;
mod session;
mod settings;
mod signing_keys;
mod tls;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use check::{Finding, check};
pub use import::Import;
pub use roots::{RootCheck, RootsFound, compare_roots};
pub use settings::{Host, OnStale, PasswordSource, Settings, Target, UrlError, is_schema_name};
pub use tls::Tls;

use crate::store;
use crate::store::api::{
    DecideKeys, DecideRotation, KeysChanged, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store, StoreFuture,
};
use crate::store::error::StoreError;
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use append::Log;
use connect::Connector;
use connections::Lane;
use driver::Driver;
use enforcement::Enforcement;
use operation::{Operation, Shared};
use outbox::Audit;
use session::Session;

/// Where the database is, and which gateway uses it.
pub struct Database {
    pub settings: Settings,
    /// May only be `None` if the URL says `sslmode=disable`.
    pub tls: Option<Tls>,
    /// The name of this gateway, which no other one has.
    pub replica: String,
}

/// The shared store. Dropping it finishes the queued operations and closes the connections, which can take as long as
/// the database needs.
pub struct PostgresStore {
    driver: Driver,
    shared: Arc<Shared>,
    outbox: Arc<Outbox>,
}

impl PostgresStore {
    /// Connects, for which it tries at most for `patience`, and creates or migrates the tables.
    ///
    /// `enforce` runs on the thread of the store. It must be fast, and must not own the store or wait for it.
    ///
    /// # Errors
    /// If there is no primary, if its settings do not allow safe commits, or if the tables belong to another program or
    /// to a newer version that this one cannot work beside. The database is then unchanged.
    pub fn open(
        database: Database,
        settings: store::Settings,
        enforce: RevocationHook,
        patience: Duration,
        now: UnixTime,
    ) -> Result<Self, StoreError> {
        let schema = database.settings.schema.clone();
        let connector = Connector::new(database.settings, database.tls, &database.replica);
        let driver = Driver::start(connector, patience)?;
        let outbox = Arc::new(Outbox::default());
        let audit = Arc::new(Audit::new(settings.audit, outbox.clone()));
        let (life, family) = (settings.longest_life, settings.longest_family);
        let prepared = driver.submit(Lane::Any, move |session| {
            let schema = schema.clone();
            async move {
                schema::prepare(&session, &schema, now).await?;
                maintenance::longest_ever(&session, "longest_family", family).await?;
                maintenance::longest_ever(&session, "longest_life", life).await
            }
        });
        let longest_life = driver.wait(prepared)?;
        let enforcement = Arc::new(Enforcement { hook: enforce, longest_life });
        let log = Log::new(settings.issuer.clone(), enforcement.clone(), audit.clone());
        let keys = tokio::sync::Mutex::default();
        let shared = Arc::new(Shared { issuer: settings.issuer, enforcement, audit, log, keys });
        let store = PostgresStore { driver, shared, outbox };
        store.driver.wait(store.run(Lane::Any, audit::Count))?;
        Ok(store)
    }

    fn run<O: Operation>(&self, lane: Lane, operation: O) -> StoreFuture<O::Output> {
        let (shared, operation) = (self.shared.clone(), Arc::new(operation));
        let run = move |session: Session| {
            let (shared, operation) = (shared.clone(), operation.clone());
            async move { operation.run(&shared, &session).await }
        };
        self.driver.submit(lane, run)
    }
}

impl Store for PostgresStore {
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(family.id), families::Issue::new(family, max_live, context))
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        context: EventContext,
    ) -> StoreFuture<Rotation> {
        self.run(Lane::Family(presented.token_id), rotation::Rotate::new(presented, decide, context))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome> {
        self.run(Lane::Family(id), families::RevokeFamily::new(id, by, context))
    }

    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64> {
        self.run(Lane::Log, revocations::Revoke::new(what, context))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.run(Lane::Any, families::Confirm { seen })
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.run(Lane::Any, families::OfSubject { subject })
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.run(Lane::Family(id), families::Show { id })
    }

    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>> {
        self.run(Lane::Any, revocations::Since { after, now })
    }

    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.run(Lane::Upkeep, maintenance::Sweep { now, limit })
    }

    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged> {
        self.run(Lane::Log, signing_keys::ChangeSigningKeys::new(decide, context))
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

    fn check(&self) -> StoreFuture<()> {
        self.run(Lane::Any, maintenance::Check)
    }

    fn close(&self) {
        self.driver.close();
    }
}

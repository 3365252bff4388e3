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
//! knows the time of the database, `gather` makes one statement of several calls, `named` numbers
//! the parameters of long ones, `attempts` repeats what a lock
//! prevents, `outbox` writes their events, and `enforcement` passes revocations on. `follower` reads what other
//! gateways append, `replicas` and `leases` let them know of each other. `open` opens the store and starts its tasks.
//!
//! `protocol.md` states the rules that all statements keep: invariants, the order of locks, and what happens when
//! something fails.
//!
//! No transaction is open while the gateway waits for a response of the database: each change is one statement. A
//! gateway that is stopped or cut off therefore holds no lock.

mod acme;
mod api_keys;
mod append;
mod attempts;
mod audit;
mod backoff;
mod calls;
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
mod named;
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
pub use settings::{Host, OnStale, PasswordSource, PostgresSettings, PostgresTarget, UrlError, is_schema_name};
pub use tls::Tls;

use crate::store::api::{Outbox, StoreFuture, StoreUpkeep};
use crate::store::freshness::Freshness;
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
        if self.freshness.is_strict() {
            replicas::when_applied(&self.driver, self.freshness.max_staleness(), revoked, sequence)
        } else {
            revoked
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
        let shared = self.shared.clone();
        let operation = Arc::new(operation);
        let run = move |session: Session| {
            let shared = shared.clone();
            let operation = operation.clone();
            async move { operation.run(&shared, &session).await }
        };
        self.driver.submit(lane, O::KIND, run)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.close();
    }
}

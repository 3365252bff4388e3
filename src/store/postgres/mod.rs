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
//! operations: each is a value that can run again. `grants` has the parts of them for `oauth.reuse`. `append` writes
//! the log of revocations for all of them, `clock` knows the time of the database, `gather` makes one statement of
//! several calls, `named` numbers the parameters of long ones, `attempts` repeats what a lock prevents, `outbox` writes
//! their events, and `enforcement` passes revocations on. `follower` reads what other gateways append, `replicas` and
//! `leases` let them know of each other. `postgres_store` runs the operations, `open` opens it and starts its tasks,
//! and `calls` has its calls.
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
mod grants;
mod import;
mod import_rows;
pub mod inspect;
mod issue;
mod issue_once;
mod lane;
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
mod postgres_store;
mod primary;
mod probe;
mod provider_logins;
mod provider_logouts;
mod repeatable;
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

pub use check::{Finding, check};
pub use database::Database;
pub use import::Import;
pub use migrate::{MigrationProgress, migrate};
pub use postgres_store::PostgresStore;
pub use roots::{RootCheck, RootsFound, compare_roots};
pub use settings::{Host, OnStale, PasswordSource, PostgresSettings, PostgresTarget, UrlError, is_schema_name};
pub use tls::Tls;

//! The shared store: the suite, on a real PostgreSQL server.

mod clocks;
mod failover;
mod faults;
mod following;
mod lifetimes;
mod locked_log;
mod locked_rows;
mod logical_copy;
mod logins;
mod long_log;
mod lost;
mod other_issuers;
mod pool;
mod repeated_calls;
mod replicas;
pub mod schema;
mod session_limit;
mod sharing;
mod strict;
mod unknown_keys;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bearward::store::postgres::{Database, OnStale, PostgresStore, PostgresTarget};
use bearward::store::{LogOrder, RevocationHook, Store, StoreError, StoreOptions};

use super::suite::records::Place;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

super::suite::run_the_suite!(crate::store::postgres::with_an_empty_store, crate::store::postgres::at_an_empty_place);

/// A function of the suite, applied to a store.
type SuiteTest<'store> = Pin<Box<dyn Future<Output = ()> + 'store>>;

fn with_an_empty_store(test: impl for<'store> FnOnce(&'store dyn Store) -> SuiteTest<'store>) {
    let store = open(&PostgresServer::shared().schema());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(test(&store));
}

/// A function of the suite that opens its stores itself.
type PlaceTest<'place> = Pin<Box<dyn Future<Output = ()> + 'place>>;

/// A schema of the server that all tests share.
pub(crate) struct Schema(pub(crate) String);

impl Place for Schema {
    fn open_with(&self, settings: StoreOptions, enforce: RevocationHook) -> Box<dyn Store> {
        Box::new(try_open(PostgresServer::shared(), &self.0, settings, enforce).expect("the store opens"))
    }

    fn order(&self) -> LogOrder {
        LogOrder::Ahead
    }
}

fn at_an_empty_place(test: impl for<'place> FnOnce(&'place dyn Place) -> PlaceTest<'place>) {
    let schema = Schema(PostgresServer::shared().schema());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(test(&schema));
}

/// How long a store may need to connect, beside all other tests.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn database(url: &str, schema: &str) -> Database {
    let settings = bearward::store::postgres::PostgresSettings {
        target: PostgresTarget::parse(url).expect("the URL is valid"),
        password: None,
        ca_file: None,
        schema: schema.into(),
        pool: 2,
        prepared: true,
        timeout: Duration::from_secs(10),
        max_staleness: Duration::from_secs(30),
        on_stale: OnStale::Deny,
        strict: false,
    };
    Database { settings, tls: None, replica: schema.into() }
}

pub(crate) fn try_open(
    server: &PostgresServer,
    schema: &str,
    settings: StoreOptions,
    enforce: RevocationHook,
) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(database(&server.url(), schema), settings, enforce, PATIENCE, LOGIN)
}

/// Opens a store of this schema on the server with this URL.
pub(crate) fn open_at(url: &str, schema: &str) -> PostgresStore {
    let enforce = Arc::new(|_: &_, _| {});
    PostgresStore::open(database(url, schema), settings(), enforce, PATIENCE, LOGIN).expect("the store opens")
}

/// Opens a store of this schema on the server that all tests share.
pub(crate) fn open(schema: &str) -> PostgresStore {
    try_open(PostgresServer::shared(), schema, settings(), Arc::new(|_, _| {})).expect("the store opens")
}

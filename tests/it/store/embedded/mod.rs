//! The embedded store: the suite, its records, and its files.

mod files;
mod outbox;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bearward::store::sqlite::{SqliteStore, StoreOptions};
use bearward::store::sweep::{SweepTime, sweep};
use bearward::store::{Backlog, Expired, FamilyStore, LogOrder, RevocationHook, Store, StoreError};
use bearward::types::clock::Clock;
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tokio::time::timeout;

use super::suite::records::Place;
use crate::support::clock::ManualClock;
use crate::support::gateway::LOCK_TIMEOUT;
use crate::support::given::*;
use crate::support::wait::eventually;

super::suite::run_the_suite!(crate::store::embedded::with_an_empty_store, crate::store::embedded::at_an_empty_place);

/// A function of the suite, applied to a store.
type SuiteTest<'store> = Pin<Box<dyn Future<Output = ()> + 'store>>;

fn with_an_empty_store(test: impl for<'store> FnOnce(&'store dyn Store) -> SuiteTest<'store>) {
    let folder = TempDir::new().expect("a folder");
    let store = open(&folder.path().join("bearward.db"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(test(&store));
}

/// A function of the suite that opens its stores itself.
type PlaceTest<'place> = Pin<Box<dyn Future<Output = ()> + 'place>>;

impl Place for PathBuf {
    fn open_with(&self, settings: StoreOptions, enforce: RevocationHook) -> Box<dyn Store> {
        Box::new(SqliteStore::open_within(LOCK_TIMEOUT, self, settings, enforce).expect("the store opens"))
    }

    fn order(&self) -> LogOrder {
        LogOrder::InOrder
    }
}

fn at_an_empty_place(test: impl for<'place> FnOnce(&'place dyn Place) -> PlaceTest<'place>) {
    let (_folder, path) = database_path();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(test(&path));
}

pub(crate) fn try_open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, settings(), Arc::new(|_, _| {}))
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open_within(LOCK_TIMEOUT, path, settings(), Arc::new(|_, _| {})).expect("the store opens")
}

/// A folder, and the path of a database in it.
fn database_path() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("bearward.db");
    (folder, path)
}

/// Without it, the sweep would take minutes.
#[tokio::test]
async fn the_pause_of_a_sweep_follows_the_backlog() {
    const ROWS: usize = 20_000;
    let (_folder, path) = database_path();
    let store = open(&path);
    let clock = ManualClock::new();
    let database = Connection::open(&path).expect("opens");
    let fill = "with recursive number (n) as (select 1 union all select n + 1 from number where n < ?1)
        insert into marks (id, kind, value, until) select randomblob(16), 'proof', x'62', ?2 from number";
    let expired = (clock.now() - Duration::from_hours(1)).as_millis() as i64;
    database.execute(fill, params![ROWS as i64, expired]).expect("writes");
    let backlog = Backlog::default();
    let mut time = SweepTime::default();
    let swept = timeout(Duration::from_secs(30), sweep(&store, &clock, &mut time, &backlog));
    let counted = eventually("they are counted", || backlog.get().rows == ROWS as u64);
    let (swept, ()) = tokio::join!(swept, counted);
    assert_eq!(swept.expect("in time").expect("sweeps"), ROWS);
    assert_eq!(backlog.swept(), ROWS as u64);
    assert_eq!(backlog.get(), Expired::default());
}

/// More families than one step of the sweep deletes.
#[tokio::test]
async fn a_sweep_goes_on_until_nothing_is_left_to_delete() {
    const FAMILIES: usize = 150;
    let (_folder, path) = database_path();
    let (store, clock) = (open(&path), ManualClock::new());
    for _ in 0..FAMILIES {
        issued(&store, "alice", LOGIN).await;
    }
    assert_eq!(store.families_of("alice".into()).await.expect("reads").len(), FAMILIES);
    assert_eq!(sweep(&store, &clock, &mut SweepTime::default(), &Backlog::default()).await.expect("sweeps"), FAMILIES);
    assert!(store.families_of("alice".into()).await.expect("reads").is_empty());
}

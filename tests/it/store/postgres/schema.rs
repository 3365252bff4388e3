//! The tables: created once, and shared with newer gateways.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::store::{FamilyStore, StoreUpkeep};

use super::{open, try_open};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

/// What a next version may do to the tables while gateways of this version use them. Each change is a transaction of
/// its own: one that locks several tables can wait for a gateway that waits for it.
pub(crate) const NEXT: &str = "begin; alter table families add column device text; commit;
    begin; alter table revocations add column by text; commit;
    begin; alter table signing_keys add column note text; commit;
    begin; alter table audit add column shard integer; commit;
    begin; alter table meta add column note text; commit;
    begin; alter table subjects add column note text; commit;
    create table devices (id text primary key);
    insert into meta (name, value) values ('devices', 0);
    insert into schema_versions (version, compatible_from, at, by)
        select max(version) + 1, 1, 0, 'next' from schema_versions;";

/// Number of steps to the tables of this version.
const STEPS: usize = 20;

fn sql(schema: &str, text: &str) -> String {
    PostgresServer::shared().sql("bearward", &format!("set role bearward; set search_path = {schema}; {text}"))
}

fn open_error(schema: &str) -> String {
    let opened = try_open(PostgresServer::shared(), schema, settings(), Arc::new(|_, _| {}));
    opened.err().expect("the store does not open").message
}

/// The whole suite, with tables of the next version.
mod next {
    use std::sync::Arc;
    use std::time::Duration;

    use bearward::store::{FamilyStore, RevocationStore, Store, StoreOptions};

    use super::super::{Place, PlaceTest, Schema, SuiteTest, open, try_open};
    use super::{NEXT, settings, sql};
    use crate::support::postgres::PostgresServer;

    crate::store::suite::run_the_suite!(
        crate::store::postgres::schema::next::with_an_empty_store,
        crate::store::postgres::schema::next::at_an_empty_place
    );

    /// The tables change while the store is open and has prepared statements.
    fn with_an_empty_store(test: impl for<'store> FnOnce(&'store dyn Store) -> SuiteTest<'store>) {
        let schema = PostgresServer::shared().schema();
        let store = open(&schema);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            store.families_of("alice".into()).await.expect("the store works");
            store.revocations_since(0).await.expect("the store works");
            sql(&schema, NEXT);
            test(&store).await;
        });
    }

    fn at_an_empty_place(test: impl for<'place> FnOnce(&'place dyn Place) -> PlaceTest<'place>) {
        let schema = PostgresServer::shared().schema();
        // The store remembers the longest lifetimes.
        let none = StoreOptions { longest_life: Duration::ZERO, longest_family: Duration::ZERO, ..settings() };
        drop(try_open(PostgresServer::shared(), &schema, none, Arc::new(|_, _| {})).expect("the store opens"));
        sql(&schema, NEXT);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(test(&Schema(schema)));
    }
}

#[test]
fn tables_that_need_newer_gateways_are_left_alone() {
    let schema = PostgresServer::shared().schema();
    drop(open(&schema));
    sql(&schema, "insert into schema_versions (version, compatible_from, at, by) values (99, 98, 0, '4.5.6')");
    let message = open_error(&schema);
    for expected in ["schema 99", "bearward 4.5.6", "schema 98 or later", &*format!("knows schema {STEPS}")] {
        assert!(message.contains(expected), "{expected} is not in {message}");
    }
    assert_eq!(sql(&schema, "select count(*) from schema_versions"), (STEPS + 1).to_string());
}

#[test]
fn tables_of_another_program_are_left_alone() {
    let schema = PostgresServer::shared().schema();
    sql(&schema, &format!("create schema {schema}; create table families (id text)"));
    let message = open_error(&schema);
    assert!(message.contains("belongs to another program") && message.contains(&schema), "{message}");
    let tables = format!("select count(*) from pg_tables where schemaname = '{schema}'");
    assert_eq!(sql(&schema, &tables), "1");
}

#[test]
fn gateways_that_start_together_create_the_tables_once() {
    let schema = PostgresServer::shared().schema();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| drop(open(&schema)));
        }
    });
    let steps: Vec<String> = (1..=STEPS).map(|step| format!("{step} 1")).collect();
    let versions = "select string_agg(version || ' ' || compatible_from, ',' order by version) from schema_versions";
    assert_eq!(sql(&schema, versions), steps.join(","));
}

#[test]
fn a_gateway_waits_while_another_one_changes_the_tables() {
    let schema = PostgresServer::shared().schema();
    let key = format!("1651995236, hashtext('{schema}')");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let lock = format!("select pg_advisory_xact_lock({key}); select pg_sleep(2)");
        scope.spawn(move || PostgresServer::shared().sql("bearward", &lock));
        let is_locked = format!(
            "select exists (select from pg_locks where locktype = 'advisory' and granted
                 and objid = (hashtext('{schema}')::bigint & 4294967295)::oid)"
        );
        while PostgresServer::shared().sql("bearward", &is_locked) != "t" {
            assert!(began.elapsed() < Duration::from_secs(20), "the lock is not taken");
        }
        let locked = Instant::now();
        drop(open(&schema));
        assert!(locked.elapsed() >= Duration::from_secs(1), "{:?}", locked.elapsed());
    });
    assert_eq!(sql(&schema, "select count(*) from schema_versions"), STEPS.to_string());
}

/// The tables appear after the gateway has looked for them.
#[test]
fn tables_that_another_gateway_made_meanwhile_are_used() {
    let schema = PostgresServer::shared().schema();
    std::thread::scope(|scope| {
        let step = include_str!("../../../../src/store/postgres/schema.sql");
        let made = format!(
            "create schema {schema}; set search_path = {schema}; {step};
             insert into schema_versions (version, compatible_from, at, by) values (1, 1, 0, '1.2.3');
             select pg_sleep(0.5)"
        );
        let path = schema.as_str();
        scope.spawn(move || sql(path, &made));
        let is_made = format!(
            "select exists (select from pg_stat_activity where wait_event = 'PgSleep' and query like '%{schema};%')"
        );
        let began = Instant::now();
        while PostgresServer::shared().sql("bearward", &is_made) != "t" {
            assert!(began.elapsed() < Duration::from_secs(20), "the other gateway makes no tables");
        }
        drop(open(&schema));
    });
    assert_eq!(sql(&schema, "select by from schema_versions order by version limit 1"), "1.2.3");
}

/// As when a gateway of this version starts beside one of the first version.
#[tokio::test]
async fn tables_of_the_first_version_get_the_later_steps() {
    let schema = PostgresServer::shared().schema();
    let first = include_str!("../../../../src/store/postgres/schema.sql");
    sql(
        &schema,
        &format!(
            "create schema {schema}; {first};
             insert into schema_versions (version, compatible_from, at, by) values (1, 1, 0, '1.2.3');
             insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
                 rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
             values ('0000000000000000000001', 'alice', '', '[]', '', '{{}}', '', sha256(''), 1, 1, 0, 0, 0, 0,
                 9000000000000, 9000000000000)"
        ),
    );
    let store = open(&schema);
    let listed = store.families_of("alice".into()).await.expect("the store works");
    assert_eq!(listed.len(), 1);
    let indexes = "select count(*) from pg_indexes where schemaname = current_schema
        and indexdef like '%(subject, created_at DESC, id DESC)%'";
    assert_eq!(sql(&schema, indexes), "3");
    assert_eq!(sql(&schema, "select count(*) from schema_versions"), STEPS.to_string());
}

#[test]
fn a_gateway_that_may_not_create_tables_says_so_at_once() {
    let schema = PostgresServer::shared().schema();
    PostgresServer::shared()
        .sql("bearward", &format!("create schema {schema}; grant usage on schema {schema} to bearward"));
    let began = Instant::now();
    let message = open_error(&schema);
    assert!(message.contains("lacks a right"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A schema that an administrator has created, for a user who may create tables in it and nothing else.
#[tokio::test]
async fn a_schema_made_by_an_administrator_is_used() {
    let schema = PostgresServer::shared().schema();
    PostgresServer::shared().sql("bearward", &format!("create schema {schema} authorization bearward"));
    let store = open(&schema);
    issued(&store, "alice", LOGIN).await;
    store.check().await.expect("the store works");
}

/// A transaction that waits for the gateway would stop all gateways when this one is stopped. A statement that does not
/// name its columns fails when a newer gateway adds one.
#[test]
fn no_statement_opens_a_transaction_or_reads_all_columns() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/postgres");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("reads").path()).collect();
    files.retain(|path| path.is_file());
    assert!(files.len() > 15, "{files:?}");
    for path in files {
        let text = fs::read_to_string(&path).expect("reads").to_ascii_lowercase();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in ["begin;", "\"begin", "start transaction", "build_transaction", ".transaction()", "select *"] {
                assert!(!line.contains(word), "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}

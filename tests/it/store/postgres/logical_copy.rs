//! A database that was copied row by row, as by logical replication: its sequences start again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bearward::store::postgres::PostgresStore;
use bearward::store::{FamilyStore, StoreOptions};

use super::{open_at, try_open};
use crate::support::given::*;
use crate::support::postgres::{PostgresServer, USER, command};
use crate::support::wait::eventually_ok;

/// More rows than refreshes are tried.
const ROWS: u32 = 200_000;

/// Creates the tables of `old` on `new`.
fn copy_tables(old: &PostgresServer, new: &PostgresServer, schema: &str) {
    let at = |server: &PostgresServer| {
        ["-h", "127.0.0.1", "-U", "postgres", "-d", USER, "-p"]
            .map(str::to_owned)
            .into_iter()
            .chain([server.port.to_string()])
    };
    let mut dump = command("pg_dump");
    let dumped = dump.args(at(old)).args(["--schema-only", "--schema", schema]).output().expect("pg_dump is there");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    let mut psql = command("psql");
    psql.args(at(new)).args(["-qX", "-v", "ON_ERROR_STOP=1"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut restored = psql.spawn().expect("psql is there");
    std::io::Write::write_all(&mut restored.stdin.take().expect("piped"), &dumped.stdout).expect("written");
    assert!(restored.wait().expect("it ran").success());
}

/// Replicates all rows to `new`, and ends the replication there.
async fn replicate(old: &PostgresServer, new: &PostgresServer) {
    old.sql(USER, "create publication moved for all tables");
    let from = format!("host=127.0.0.1 port={} user=postgres dbname={USER}", old.port);
    new.sql(USER, &format!("create subscription moved connection '{from}' publication moved"));
    eventually_ok("all tables are copied", async || {
        let left = new.sql(USER, "select count(*) from pg_subscription_rel where srsubstate <> 'r'");
        (left == "0").then_some(()).ok_or(left)
    })
    .await;
    new.sql(USER, "drop subscription moved");
}

fn records_all() -> StoreOptions {
    StoreOptions { audit: 1_000_000, ..settings() }
}

fn opened(schema: &str) -> PostgresStore {
    try_open(PostgresServer::shared(), schema, records_all(), Arc::new(|_, _| {})).expect("the store opens")
}

/// Undelivered events, with the numbers that the sequence has next.
fn fill_outbox(schema: &str) {
    let rows = format!(
        "insert into {schema}.audit (id, event)
            select sha256(n::text::bytea), '{{}}' from generate_series(1, {ROWS}) as g (n);
        alter sequence {schema}.audit_sequence_seq restart"
    );
    PostgresServer::shared().sql(USER, &rows);
}

#[tokio::test]
async fn sessions_go_on_after_a_switch_to_a_logically_replicated_copy() {
    let old = PostgresServer::start_with(&["wal_level=logical", "fsync=off"], "trust");
    let new = PostgresServer::start_with(&["fsync=off"], "trust");
    let schema = old.schema();
    let store = open_at(&old.url(), &schema);
    let family = issued(&store, "alice", LOGIN).await;
    let family = rotated(&store, &family, 1, LOGIN).await;
    let key = "('a', 'ES256', 1, '', 0, 0)";
    old.sql(
        USER,
        &format!(
            "insert into {schema}.signing_keys (kid, algorithm, root, sealed, created_at, token_life) values {key}"
        ),
    );
    copy_tables(&old, &new, &schema);
    replicate(&old, &new).await;
    drop(store);

    let store = open_at(&new.url(), &schema);
    let family = rotated(&store, &family, 2, LOGIN).await;
    assert_eq!(family.generation, 3);
    let next = |table: &str, column: &str| {
        let next = format!("select nextval('{schema}.{table}_{column}_seq') > max({column}) from {schema}.{table}");
        new.sql(USER, &next)
    };
    assert_eq!([next("audit", "sequence"), next("signing_keys", "number")], ["t", "t"]);
}

/// Its connections lead to another server from one moment to the next.
#[tokio::test]
async fn a_store_that_runs_goes_on_after_the_switch() {
    let schema = PostgresServer::shared().schema();
    let store = opened(&schema);
    let family = issued(&store, "alice", LOGIN).await;
    fill_outbox(&schema);
    let refused = store.rotate(token(&family, 1), at(LOGIN), LOGIN.into()).await.expect_err("the number is taken");
    assert!(refused.message.contains("SELECT setval(pg_get_serial_sequence('audit', 'sequence')"), "{refused}");
    PostgresServer::shared().terminate_connections(&format!("bearward/{schema}"));
    eventually_ok("a refresh works", async || {
        store.rotate(token(&family, 1), at(LOGIN), LOGIN.into()).await.map_err(|error| error.message)
    })
    .await;
}

#[tokio::test]
async fn a_start_names_the_command_if_the_user_may_not_advance_a_sequence() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(opened(&schema));
    fill_outbox(&schema);
    let role = format!("{schema}_serving");
    server.sql(
        USER,
        &format!(
            "create role {role} login;
            grant usage on schema {schema} to {role};
            grant select, insert, update, delete on all tables in schema {schema} to {role};
            grant usage on all sequences in schema {schema} to {role}"
        ),
    );
    let url = server.url().replace(&format!("{USER}@"), &format!("{role}@"));
    let open = || {
        let database = super::database(&url, &schema);
        PostgresStore::open(database, records_all(), Arc::new(|_, _| {}), Duration::ZERO, LOGIN)
    };
    let message = open().err().expect("it does not open").message;
    let command = format!("SELECT setval('{schema}.audit_sequence_seq', {ROWS})");
    assert!(message.contains(&command), "{message}");
    server.sql(USER, &command);
    issued(&open().expect("it opens"), "alice", LOGIN).await;
}

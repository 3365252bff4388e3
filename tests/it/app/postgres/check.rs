//! Messages of `bearward check` and of a start about a database that the gateway cannot use.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use std::sync::Arc;

use super::{folder, gateway, start_error, text};
use crate::support::Upstream;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::bearward;
use crate::support::wait::eventually_ok;

fn check(folder: &Path, text: &str) -> Output {
    std::fs::write(folder.join("gateway.toml"), text).expect("written");
    bearward(folder, &["check"])
}

fn output(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join("\n")
}

/// Expects the same reason from both, and from the check also the place of the key.
#[track_caller]
fn assert_unusable(upstream: &Upstream, keys: &str, says: &str) {
    let (folder, text) = (folder(), text(upstream, keys));
    let checked = check(folder.path(), &text);
    assert_eq!(checked.status.code(), Some(2), "{}", output(&checked));
    let line = text.lines().position(|line| line.starts_with("postgres = ")).expect("the key") + 1;
    let shown = output(&checked).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("store.postgres: ") && shown.contains(&format!("gateway.toml:{line}:12")), "{shown}");
    assert!(shown.contains(says), "{says:?}: {shown}");
    let error = start_error(&text, folder.path());
    assert!(error.contains("store.postgres: cannot open") && error.contains(says), "{says:?}: {error}");
}

/// A role with these settings, and a database of it.
fn role(name: &str, settings: &str) -> String {
    let server = PostgresServer::shared();
    server.sql("postgres", &format!("create role {name} login"));
    server.sql("postgres", &format!("create database {name} owner {name} encoding 'UTF8' template template0"));
    if !settings.is_empty() {
        server.sql("postgres", &format!("alter role {name} set {settings}"));
    }
    format!("postgres = \"postgres://{name}@127.0.0.1:{}/{name}?sslmode=disable\"", server.port)
}

#[tokio::test]
async fn a_database_that_is_not_there_is_reported() {
    let (upstream, server) = (Upstream::start(), PostgresServer::shared());
    let url = |user: &str, port: u16, database: &str| {
        format!("postgres = \"postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable\"")
    };
    assert_unusable(&upstream, &url("bearward", server.port, "nowhere"), "create it with CREATE DATABASE");
    assert_unusable(&upstream, &url("unknown_role", server.port, "bearward"), "role \"unknown_role\" does not exist");
    assert_unusable(
        &upstream,
        &url("bearward", 1, "bearward"),
        "127.0.0.1:1: no server listens at this address; start it",
    );
}

/// Each says where the gateway tried, what went wrong, and what to do.
#[tokio::test]
async fn each_way_in_which_no_connection_comes_about_has_advice() {
    let upstream = Upstream::start();
    let keys = |place: &str| format!("postgres = \"postgres://bearward@{place}\"");
    let unknown = keys("no-such-host.invalid:7777/bearward?sslmode=disable");
    assert_unusable(&upstream, &unknown, "no-such-host.invalid:7777: no name server knows this host; correct it in");
    let no_tls = keys(&format!("127.0.0.1:{}/bearward", PostgresServer::shared().port));
    assert_unusable(&upstream, &no_tls, ": the server has no TLS; set ssl = on there, or say sslmode=disable");
    assert_unusable(&upstream, &keys("/bearward?host=/nowhere"), "/nowhere/.s.PGSQL.5432: there is no such socket");
    let two = keys("127.0.0.1:1,127.0.0.1:2/bearward?sslmode=disable");
    assert_unusable(&upstream, &two, "listen_addresses of the server (PostgreSQL: error connecting to server");
    assert_unusable(&upstream, &two, "; 127.0.0.1:2: no server listens at this address");
    // It accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = format!("127.0.0.1:{}/bearward?sslmode=disable&connect_timeout=1", address(&silent));
    assert_unusable(&upstream, &keys(&place), "the server cannot be reached; correct the host");
    // It is another program.
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = format!("127.0.0.1:{}/bearward?sslmode=disable", address(&other));
    std::thread::spawn(move || other.incoming().for_each(drop));
    assert_unusable(&upstream, &keys(&place), "check that PostgreSQL listens at this port");
}

fn address(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("bound").port()
}

#[tokio::test]
async fn a_wrong_or_missing_password_names_the_key() {
    let (upstream, server) = (Upstream::start(), PostgresServer::start_with(&["fsync=off"], "scram-sha-256"));
    let url = format!("postgres = \"{}\"\n", server.url());
    assert_unusable(
        &upstream,
        &url,
        "the server asks for a password; correct the user in store.postgres, or set store.postgres_password_file",
    );
    let folder = folder();
    let wrong = folder.path().join("password");
    bearward::types::secret::write_private(&wrong, b"wrong\n").expect("written");
    let keys = format!("{url}postgres_password_file = \"{}\"", wrong.display());
    let says = "the user or its password is wrong; correct the user in store.postgres, or store.postgres_password_file";
    assert_unusable(&upstream, &keys, says);
}

#[tokio::test]
async fn a_role_that_may_lose_revocations_is_rejected() {
    let upstream = Upstream::start();
    let keys = role("forgetful", "synchronous_commit = off");
    assert_unusable(&upstream, &keys, "synchronous_commit is off for this user");
    PostgresServer::shared().sql("postgres", "alter role forgetful set synchronous_commit = local");
    assert_unusable(&upstream, &keys, "ALTER ROLE … SET synchronous_commit = on");
    PostgresServer::shared().sql("postgres", "alter role forgetful set synchronous_commit = remote_apply");
    let folder = folder();
    assert!(check(folder.path(), &text(&upstream, &keys)).status.success(), "an operator may ask for more");
}

#[tokio::test]
async fn a_server_that_is_read_only_is_rejected() {
    let upstream = Upstream::start();
    assert_unusable(&upstream, &role("reader", "default_transaction_read_only = on"), "is not the primary");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_rejected() {
    let (upstream, server) = (Upstream::start(), PostgresServer::shared());
    server.sql("postgres", "create database ascii owner bearward encoding 'SQL_ASCII' template template0");
    let keys = format!("postgres = \"postgres://bearward@127.0.0.1:{}/ascii?sslmode=disable\"", server.port);
    assert_unusable(&upstream, &keys, "has the encoding SQL_ASCII");
}

#[tokio::test]
async fn missing_rights_are_named_with_the_statement_that_grants_them() {
    let (upstream, server) = (Upstream::start(), PostgresServer::shared());
    server.sql("postgres", "create role guest login");
    let (folder, schema) = (folder(), server.schema());
    let keys = format!(
        "postgres = \"postgres://guest@127.0.0.1:{}/bearward?sslmode=disable\"\nschema = \"{schema}\"",
        server.port
    );
    let text = text(&upstream, &keys);
    let says = |says: &str| {
        let checked = check(folder.path(), &text);
        let shown = output(&checked);
        assert!(!checked.status.success() && shown.contains(says), "{says:?}: {shown}");
    };
    says(&format!("CREATE SCHEMA {schema} AUTHORIZATION guest"));
    server.sql("bearward", &format!("create schema {schema}; create table {schema}.schema_versions (version integer)"));
    says(&format!("GRANT USAGE ON SCHEMA {schema} TO guest"));
    server.sql("bearward", &format!("grant usage on schema {schema} to guest"));
    says(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO guest"));
}

/// All rows of all tables but those that running gateways renew, with the transactions that wrote them.
fn contents(server: &PostgresServer, schema: &str) -> String {
    let tables =
        format!("select relname from pg_class where relnamespace = '{schema}'::regnamespace and relkind = 'r'");
    let tables = server.sql("bearward", &tables);
    let renewed = ["replicas", "leases"];
    let read =
        |table: &str| server.sql("bearward", &format!("select xmin, t::text from {schema}.{table} t order by 2"));
    let parts =
        tables.lines().filter(|table| !renewed.contains(table)).map(|table| format!("{table}: {}", read(table)));
    let gateways = server.sql("bearward", &format!("select count(*) from {schema}.replicas"));
    parts.chain([gateways]).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_check_beside_a_running_gateway_changes_nothing() {
    let (upstream, server, files) = (Upstream::start(), PostgresServer::shared(), folder());
    let keys = format!("{}pool = 2\n", server.store_keys());
    let running = gateway(&upstream, &keys, &files, &Arc::new(ManualClock::new()));
    running.issue("alice", "").await;
    let schema = keys.split("schema = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a schema");
    eventually_ok("the gateway is listed and ready", async || {
        let ready = running.admin_client().get("/readyz").await;
        let listed = server.sql("bearward", &format!("select count(*) from {schema}.replicas"));
        let waiting = server.sql("bearward", &format!("select count(*) from {schema}.audit"));
        (ready.status == 200 && listed == "1" && waiting == "0").then_some(()).ok_or(format!("{listed}, {waiting}"))
    })
    .await;
    let before = contents(server, schema);
    assert!(before.contains("families: ") && before.contains("alice"), "{before}");
    let checked = check(files.path(), &text(&upstream, &keys));
    assert!(checked.status.success(), "{}", output(&checked));
    assert_eq!(contents(server, schema), before);
    // The probe of the gateway itself writes only its own row.
    assert_eq!(running.admin_client().get("/readyz").await.status, 200);
    assert_eq!(contents(server, schema), before);
}

#[tokio::test]
async fn a_check_warns_and_changes_nothing() {
    let (upstream, server, folder) = (Upstream::start(), PostgresServer::shared(), folder());
    let keys = server.store_keys();
    let checked = check(folder.path(), &text(&upstream, &keys));
    let shown = output(&checked);
    assert!(checked.status.success(), "{shown}");
    assert!(shown.contains("no synchronous standby") && shown.contains("fsync = off"), "{shown}");
    assert!(!shown.contains("superuser") && !shown.contains("clock"), "{shown}");
    let schema = keys.rsplit('"').nth(1).expect("the last key is the schema");
    assert!(!server.sql("bearward", "select nspname from pg_namespace").contains(schema));

    let unreachable = "postgres = \"postgres://a@127.0.0.1:1/b?sslmode=disable\"";
    std::fs::write(folder.path().join("gateway.toml"), text(&upstream, unreachable)).expect("written");
    assert!(bearward(folder.path(), &["check", "--offline"]).status.success());
}

#[tokio::test]
async fn too_few_connections_and_a_superuser_are_reported() {
    let (upstream, folder) = (Upstream::start(), folder());
    let server = PostgresServer::start_with(&["max_connections=8"], "trust");
    let shown = |user: &str, pool: usize| {
        let url = format!("postgres://{user}@127.0.0.1:{}/bearward?sslmode=disable", server.port);
        output(&check(folder.path(), &text(&upstream, &format!("postgres = \"{url}\"\npool = {pool}"))))
    };
    // Three of the eight are reserved for superusers, and each gateway needs three beside the pool.
    let few = shown("bearward", 4);
    assert!(few.contains("allows 5 connections, and each gateway opens 7") && !few.contains("superuser"), "{few}");
    let superuser = shown("postgres", 2);
    assert!(!superuser.contains("connections") && superuser.contains("is a superuser"), "{superuser}");
}

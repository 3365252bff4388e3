//! Several hosts in `store.postgres`: which of them everything uses, and what the journal says of the others.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::copy::copy_when_free;
use super::{folder, schema, text};
use crate::support::clock::ManualClock;
use crate::support::postgres::{PostgresServer, REPLICATED, USER};
use crate::support::program::{GatewayProcess, bearward};
use crate::support::{Gateway, Upstream};

/// A server that was the primary and goes on, and the one that was promoted after it.
fn split() -> (PostgresServer, PostgresServer) {
    let settings: Vec<&str> = REPLICATED.iter().copied().chain(["fsync=off"]).collect();
    let old = PostgresServer::start_with(&settings, "trust");
    let new = old.standby(old.port);
    new.promote();
    (old, new)
}

/// The keys of `[store]`, with both servers in this order, and a schema of its own.
fn keys(first: &PostgresServer, second: &PostgresServer) -> String {
    first.store_keys().replacen(&format!("/{USER}?"), &format!(",127.0.0.1:{}/{USER}?", second.port), 1)
}

fn write(folder: &Path, upstream: &Upstream, keys: &str) {
    fs::write(folder.join("gateway.toml"), text(upstream, keys)).expect("written");
}

/// Runs a command that succeeds. Returns what it says, in one line.
#[track_caller]
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = bearward(folder, arguments);
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join(" ");
    assert!(output.status.success(), "{arguments:?}: {said}");
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_tables(server: &PostgresServer, schema: &str) -> bool {
    server.sql(USER, &format!("select to_regclass('{schema}.families') is not null")) == "t"
}

/// The old server is the first one, and accepts changes.
#[test]
fn every_command_uses_the_server_that_was_promoted_last() {
    let upstream = Upstream::start();
    let (old, new) = split();
    let files = folder();
    let keys = keys(&old, &new);
    let schema = schema(&keys);
    write(files.path(), &upstream, &keys);
    let said = run(files.path(), &["store", "migrate"]);
    assert!(
        said.contains(&format!("host=127.0.0.1:{}", old.port)) && said.contains("was the primary before"),
        "{said}"
    );
    assert!(has_tables(&new, schema) && !has_tables(&old, schema));

    // What a gateway and a check would stop at: the old server was used with another root secret, and lacks a right.
    write(files.path(), &upstream, &format!("postgres = \"{}\"\nschema = \"{schema}\"\n", old.url()));
    run(files.path(), &["store", "migrate"]);
    let other = "insert into root_check (root, value, at) values (1, '\\x00', 0); revoke insert on marks from bearward";
    old.sql(USER, &format!("set role {USER}; set search_path = {schema}; {other}"));
    write(files.path(), &upstream, &keys);
    drop(GatewayProcess::start(files.path()));
    run(files.path(), &["check"]);
    run(files.path(), &["store", "sweep"]);
}

#[tokio::test]
async fn a_copy_is_made_to_the_server_that_was_promoted_last() {
    let upstream = Upstream::start();
    let (old, new) = split();
    let files = folder();
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), Arc::new(ManualClock::new()));
    sqlite.issue("alice", "").await;
    drop(sqlite);
    let keys = keys(&old, &new);
    write(files.path(), &upstream, &keys);
    let copied = copy_when_free(files.path());
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert_eq!(new.sql(USER, &format!("select subject from {}.families", schema(&keys))), "alice");
    assert!(!has_tables(&old, schema(&keys)));
}

const CANNOT_ASK: &str = "cannot be asked whether it is the primary";

/// How often the journal says that it cannot ask this server, and in all.
fn complaints(log: &str, server: &PostgresServer) -> (usize, usize) {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(CANNOT_ASK)).collect();
    let host = format!("host=127.0.0.1:{} ", server.port);
    let of_host = lines.iter().filter(|line| line.contains(&host)).count();
    (of_host, lines.len())
}

/// Otherwise the operator would learn it from the failover.
#[test]
fn the_journal_says_once_why_a_server_cannot_be_asked() {
    const PASSWORD: &str = "not-that-of-the-role";
    const LOOKS: Duration = Duration::from_secs(2);
    let upstream = Upstream::start();
    let first = PostgresServer::start_with(&["fsync=off"], "trust");
    let mut second = PostgresServer::start_with(&["fsync=off"], "scram-sha-256");
    let files = folder();
    bearward::types::secret::write_private(&files.path().join("password"), PASSWORD.as_bytes()).expect("written");
    let more = "postgres_password_file = \"password\"\nmax_staleness = \"1s\"";
    write(files.path(), &upstream, &format!("{more}\n{}", keys(&first, &second)));
    let running = GatewayProcess::start(files.path());
    let journal = &running.program;
    journal.wait_for_stderr("the user or its password is wrong");
    sleep(LOOKS);
    let log = journal.stderr_so_far();
    assert_eq!(complaints(&log, &second), (1, 1), "{log}");

    second.sql("postgres", &format!("alter role {USER} password '{PASSWORD}'"));
    journal.wait_for_stderr("can be asked again");
    second.sql(USER, "revoke execute on function pg_control_system() from public");
    journal.wait_for_stderr("permission denied for function pg_control_system");
    second.kill();
    sleep(LOOKS);
    let log = journal.stderr_so_far();
    assert_eq!(complaints(&log, &second), (2, 2), "a server that is down is no fault: {log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

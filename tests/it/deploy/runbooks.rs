//! The runbooks of `deploy/postgresql.md`: their commands run on real servers, beside gateways.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::clock::ManualClock;
use crate::support::files::{blocks, output_text};
use crate::support::postgres::{PostgresServer, REPLICATED, USER, binary, command, own, processes_in};
use crate::support::replicas::{copy_roots, folder, gateway};
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Gateway, TokenPair, Upstream, source};

const PAGE: &str = "deploy/postgresql.md";
/// How long a gateway may need after a restart of its server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The code blocks of this language behind this heading.
fn shown(heading: &str, language: &str) -> Vec<String> {
    let page = source::read(PAGE);
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    blocks(section.unwrap_or_else(|| panic!("no {heading}")), language)
}

/// Stops and starts the server. It ends by itself if the test is killed.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -euo pipefail
[[ $2 == postgresql ]]
if [[ $1 != start ]]; then pg_ctl stop --pgdata "$DATA" --mode fast --wait; fi
if [[ $1 != stop ]]; then
    timeout --signal QUIT 300 postgres -D "$DATA" -p "$PGPORT" -h 127.0.0.1 </dev/null >>"$DATA.log" 2>&1 &
    until psql -Atc "SELECT 1"; do sleep 0.05; done
fi
"#;

/// The machine of a server, where the commands run.
struct Machine<'server> {
    server: &'server PostgresServer,
    data: PathBuf,
}

impl<'server> Machine<'server> {
    fn new(server: &'server PostgresServer) -> Self {
        for name in ["bin", "backup", "backup/wal"] {
            fs::create_dir(server.folder.join(name)).expect("created");
            own(&server.folder.join(name));
        }
        let script = server.folder.join("bin/systemctl");
        fs::write(&script, SYSTEMCTL).expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
        Machine { server, data: server.folder.join("data") }
    }

    /// Runs commands of the page as the user of the server.
    fn run(&self, script: &str) {
        let output = self.with_variables(command("bash"), script);
        assert!(output.status.success(), "{script}\n{}", output_text(&output));
    }

    fn with_variables(&self, mut bash: Command, script: &str) -> Output {
        let Machine { server, data } = self;
        let folder = server.folder.display().to_string();
        let programs = binary("postgres").parent().expect("a folder").display().to_string();
        let path = format!("{folder}/bin:{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let script = script
            .replace("/var/lib/postgresql/15/main", &data.display().to_string())
            .replace("/backup", &format!("{folder}/backup"));
        bash.args(["-c", &format!("set -euxo pipefail\n{script}")]).env("PATH", path).env("DATA", data);
        bash.env("PGHOST", "127.0.0.1").env("PGPORT", server.port.to_string()).env("PGUSER", "postgres");
        bash.env("PGDATABASE", "postgres").env("PGPASSWORD", "secret of the superuser");
        bash.stdin(Stdio::null()).output().expect("bash is there")
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // `systemctl` has started it, so that nothing else ends it.
        let _ = Command::new("kill").arg("-QUIT").args(processes_in(&self.data)).stderr(Stdio::null()).status();
    }
}

async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> Result<TokenPair, String> {
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    (response.status == 200).then(|| TokenPair::from_json(&response.json())).ok_or(format!("{response:?}"))
}

#[tokio::test]
async fn a_database_returns_to_a_point_in_time() {
    let [archive, back_up, restore] = &shown("Point-in-time recovery", "sh")[..] else { panic!("other commands") };
    let upstream = Upstream::start();
    let clock = Arc::new(ManualClock::new());
    let files = [folder(), folder()];
    let server = PostgresServer::start_with(REPLICATED, "trust");
    let machine = Machine::new(&server);
    machine.run(archive);
    let keys = server.store_keys();
    let runs = gateway(&upstream, &keys, &files[0], &clock);
    let [alice, carol] = [runs.issue("alice", "").await, runs.issue("carol", "").await];
    machine.run(back_up);
    let dave = runs.issue("dave", "").await;
    let point = server.sql("postgres", "select clock_timestamp() at time zone 'UTC'");
    assert_eq!(runs.revoke(&alice.access, &alice.token_id).await.status, 200);
    let child = refreshed(&runs, &carol).await.expect("the gateway works");
    let bob = runs.issue("bob", "").await;
    server.sql("postgres", "select pg_switch_wal()");

    let at_point = restore.replace("2026-11-26 12:00:00+00", &format!("{point}+00"));
    assert_ne!(at_point, *restore, "the page names another time");
    machine.run(&at_point);
    let next = eventually_within(PATIENCE, "the gateway works again", async || refreshed(&runs, &dave).await).await;
    assert_eq!(runs.status_of(&next.access).await, 200, "dave came before the point");
    eventually_within(PATIENCE, "what was revoked is written back", async || {
        let forks = runs.metric("bearward_store_forked_total").await;
        let lost = runs.metric("bearward_revocations_lost").await;
        let left = format!("{forks} {lost}");
        (forks >= 1.0 && lost == 0.0).then_some(()).ok_or(left)
    })
    .await;
    for (pair, why) in [(&child, "refreshed after the point"), (&bob, "began after the point")] {
        assert_eq!(runs.refresh(&pair.access, &pair.refresh).await.status, 400, "{why}");
    }
    // One that knows only the restored database.
    copy_roots(files[0].path(), files[1].path());
    let starts = gateway(&upstream, &keys, &files[1], &clock);
    for gateway in [&runs, &starts] {
        assert_eq!(gateway.status_of(&alice.access).await, 401, "she was revoked after the point");
        assert_eq!(gateway.status_of(&carol.access).await, 200);
    }
}

/// The commands of the page between two servers.
fn between(old: &PostgresServer, new: &PostgresServer, script: &str) -> String {
    let at = |server: &PostgresServer| format!("host=127.0.0.1 port={}", server.port);
    script.replace("host=db-old", &at(old)).replace("host=db-new", &at(new))
}

#[tokio::test]
async fn gateways_follow_a_move_to_another_server() {
    let [hosts, copy, wait, switch] = &shown("Move to another server", "sh")[..] else { panic!("other commands") };
    let upstream = Upstream::start();
    let clock = Arc::new(ManualClock::new());
    let files = folder();
    let old = PostgresServer::start_with(&["wal_level=logical"], "trust");
    let new = PostgresServer::start();
    new.sql("postgres", &format!("drop database {USER}"));
    new.sql("postgres", &format!("drop role {USER}"));
    let machine = Machine::new(&old);
    // The new one is the first one, so that the order does not help.
    let ports = format!("127.0.0.1:{},127.0.0.1:{}", new.port, old.port);
    let keys = format!("postgres = \"postgres://{USER}@{ports}/{USER}?sslmode=disable\"\n");
    let moves = gateway(&upstream, &keys, &files, &clock);
    let [alice, bob] = [moves.issue("alice", "").await, moves.issue("bob", "").await];
    machine.run(&between(&old, &new, &[hosts, copy, wait].map(String::as_str).concat()));
    // The publication passes on changes of all tables.
    let alice = refreshed(&moves, &alice).await.expect("the gateway works");
    assert_eq!(moves.revoke(&bob.access, &bob.token_id).await.status, 200);
    let carol = moves.issue("carol", "").await;

    machine.run(&between(&old, &new, &[hosts, switch].map(String::as_str).concat()));
    let next = eventually_within(PATIENCE, "refreshes work", async || refreshed(&moves, &alice).await).await;
    assert_eq!(moves.status_of(&next.access).await, 200);
    refreshed(&moves, &carol).await.expect("her session moved, too");
    assert_eq!(moves.status_of(&bob.access).await, 401, "he was revoked before");
    assert_eq!(moves.refresh(&bob.access, &bob.refresh).await.status, 400);
    assert_eq!(moves.metric("bearward_store_forked_total").await, 0.0, "nothing was lost");
    let generations = "select string_agg(generation::text, ' ' order by subject) from bearward.families";
    assert_eq!([old.sql(USER, generations), new.sql(USER, generations)], ["2 1 1", "3 1 2"], "alice, bob, carol");
}

#[tokio::test]
async fn a_password_is_renewed_while_the_gateway_runs() {
    let [renew] = &shown("Renew the password", "sh")[..] else { panic!("other commands") };
    let upstream = Upstream::start();
    let clock = Arc::new(ManualClock::new());
    let files = folder();
    let server = PostgresServer::start_with(&["fsync=off"], "scram-sha-256");
    let machine = Machine::new(&server);
    let file = files.path().join("postgres.password");
    bearward::types::secret::write_private(&file, b"secret\n").expect("written");
    let keys = format!("{}postgres_password_file = \"postgres.password\"\n", server.store_keys());
    let runs = gateway(&upstream, &keys, &files, &clock);
    let alice = runs.issue("alice", "").await;
    // As the user of the gateway.
    let script = renew.replace("/etc/bearward", &files.path().display().to_string());
    let output = machine.with_variables(Command::new("bash"), &script);
    assert!(output.status.success(), "{}", output_text(&output));
    let renewed = fs::read_to_string(&file).expect("it is there");
    assert_eq!(renewed.trim().len(), 64, "{renewed:?}");
    let alice = refreshed(&runs, &alice).await.expect("open connections stay open");
    assert!(server.terminate_connections("bearward/") > 0);
    eventually_within(PATIENCE, "the next connections use it", async || refreshed(&runs, &alice).await).await;
}

/// A fifth of the table must be dead by default, and 4 % are. `other` has no settings.
#[tokio::test]
async fn autovacuum_comes_earlier_to_large_tables() {
    let [settings] = &shown("Autovacuum", "sql")[..] else { panic!("other statements") };
    let server = PostgresServer::start_with(&["fsync=off", "autovacuum_naptime=1s"], "trust");
    for schema in ["bearward", "other"] {
        drop(crate::store::postgres::open_at(&server.url(), schema));
        server.sql(
            USER,
            &format!(
                "insert into {schema}.families (id, subject, scope, audience, client_id, claims, label, salt,
                    generation, root, rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
                select n, 'alice', '', '[]', '', '{{}}', '', sha256(''), 1, 1, 0, 0, 0, 0, 9000000000000, 9000000000000
                from generate_series(1, 50000) as g (n)"
            ),
        );
        server.sql(USER, &format!("vacuum analyze {schema}.families"));
    }
    server.sql(USER, settings);
    let count = |schema: &str, table: &str| {
        let count = format!(
            "select coalesce(autovacuum_count, 0) from pg_stat_user_tables
                where schemaname = '{schema}' and relname = '{table}'"
        );
        server.sql(USER, &count).parse::<u64>().expect("a number")
    };
    let before = ["bearward", "other"].map(|schema| count(schema, "families"));
    for schema in ["bearward", "other"] {
        server.sql(USER, &format!("update {schema}.families set generation = 2 where id::int % 25 = 0"));
        let events = format!("insert into {schema}.audit (id, event) select sha256(n::text::bytea), '{{}}'");
        server.sql(USER, &format!("{events} from generate_series(1, 6000) as g (n); delete from {schema}.audit"));
    }
    for table in ["families", "audit"] {
        eventually_within(PATIENCE, table, async || {
            let now = count("bearward", table);
            (now > if table == "families" { before[0] } else { 0 }).then_some(()).ok_or(now.to_string())
        })
        .await;
    }
    assert_eq!(count("other", "families"), before[1], "by default, 4 % are too few");
}

/// No vacuum, 20,000 renewals of a lease.
#[tokio::test]
async fn small_tables_need_no_vacuum() {
    let server = PostgresServer::start_with(&["fsync=off", "autovacuum=off"], "trust");
    drop(crate::store::postgres::open_at(&server.url(), "bearward"));
    server.sql(USER, "insert into bearward.leases values ('sweep', 'a', 1, 0) on conflict do nothing");
    for table in ["leases set until", "meta set value"] {
        let renew = format!("update bearward.{table} = i where name in ('sweep', 'checks')");
        server.sql(USER, &format!("do $$ begin for i in 1..20000 loop {renew}; commit; end loop; end $$"));
    }
    eventually_ok("both are small", async || {
        let sizes = server.sql(USER, "select pg_relation_size('bearward.leases') + pg_relation_size('bearward.meta')");
        (sizes.parse::<u64>().expect("a number") <= 32 * 1024).then_some(()).ok_or(sizes)
    })
    .await;
}

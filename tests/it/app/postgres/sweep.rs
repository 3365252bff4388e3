//! `bearward store sweep` on a shared store.

use std::sync::Arc;
use std::time::Duration;

use super::{folder, gateway, schema, store_keys, text};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::{bearward, bearward_with_variables};
use crate::support::wait::eventually;
use crate::support::{Upstream, preload};

/// The gateway sweeps too, and has the lease for it. Its clock is late, so that it does not delete these rows itself.
#[tokio::test]
async fn beside_a_running_gateway_it_deletes_all_that_has_ended() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    clock.set_back(Duration::from_hours(1));
    let running = gateway(&upstream, &keys, &files, &clock);
    let alice = running.issue("alice", "").await;
    let server = PostgresServer::shared();
    let schema = schema(&keys);
    let sql = |sql: &str| server.sql("bearward", &format!("set role bearward; set search_path = {schema}; {sql}"));
    eventually("the gateway has the lease", || sql("select count(*) from leases where name = 'sweep'") == "1").await;
    sql("update leases set until = 9000000000000 where name = 'sweep';
        insert into marks select decode(md5(n::text), 'hex'), 'proof', 'b',
            (extract(epoch from clock_timestamp()) * 1000)::bigint - 600000, 'c', 0 from generate_series(1, 250) n");
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    let mut transaction =
        server.open_transaction("bearward", &format!("select from {schema}.marks limit 1 for update"));
    eventually("one row is locked", || {
        sql("select count(*) from (select from marks for update skip locked) m") == "249"
    })
    .await;
    let sweep = |deleted: &str, left: &str| {
        let swept = bearward(files.path(), &["store", "sweep"]);
        let said = String::from_utf8_lossy(&swept.stdout);
        assert!(swept.status.success() && said.contains(deleted) && said.contains(left), "{said}");
    };
    sweep("deleted 249 rows of", "rows left: 1;");
    let end = "select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l on l.pid = a.pid
        where l.relation = 'marks'::regclass and a.query like '%pg_sleep(3600)%'";
    server.sql("bearward", &format!("set search_path = {schema}; {end}"));
    let _ = transaction.wait();
    sweep("deleted 1 rows of", "rows left: 0");
    assert_eq!(running.refresh(&alice.access, &alice.refresh).await.status, 200);
}

/// No session lives for that long.
const YEAR: &str = "31536000";

#[tokio::test]
async fn an_operators_clock_that_is_ahead_deletes_nothing() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let first = gateway(&upstream, &keys, &files, &clock);
    let alice = first.issue("alice", "").await;
    drop(first);
    // Of the marks, one has ended long ago.
    let prepare = "insert into marks values ('a', 'proof', 'b', 1, 'c', 0)";
    let schema = schema(&keys);
    PostgresServer::shared().sql("bearward", &format!("set role bearward; set search_path = {schema}; {prepare}"));
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    preload::compile("clock", files.path());
    let ahead = [("LD_PRELOAD", "./clock.so"), ("BEARWARD_CLOCK", YEAR)];
    let swept = bearward_with_variables(files.path(), &["store", "sweep"], &ahead);
    let progress = String::from_utf8_lossy(&swept.stderr);
    assert!(!swept.status.success() && progress.contains("differ by 31536000.0s; correct one of them"), "{progress}");
    let swept = bearward(files.path(), &["store", "sweep"]);
    let progress = String::from_utf8_lossy(&swept.stderr);
    assert!(swept.status.success() && progress.contains("deleted rows: 1 of 1"), "{progress}");
    // The session is still there.
    let next = gateway(&upstream, &keys, &files, &clock);
    assert_eq!(next.refresh(&alice.access, &alice.refresh).await.status, 200);
}

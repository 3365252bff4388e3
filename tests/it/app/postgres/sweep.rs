//! `bearward store sweep` on a shared store.

use std::sync::Arc;

use super::{folder, gateway, schema, store_keys, text};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::bearward_with_variables;
use crate::support::{Upstream, preload};

/// No session lives for that long.
const YEAR: &str = "31536000";

#[tokio::test]
async fn an_operators_clock_that_is_ahead_ends_no_session() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let first = gateway(&upstream, &keys, &files, &clock);
    let alice = first.issue("alice", "").await;
    drop(first);
    // A gateway that has just ended still has the lease of the sweep. Of the marks, one has ended long ago.
    let prepare = "delete from leases; insert into marks values ('a', 'proof', 'b', 1, 'c', 0)";
    let schema = schema(&keys);
    PostgresServer::shared().sql("bearward", &format!("set role bearward; set search_path = {schema}; {prepare}"));
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    preload::compile("clock", files.path());
    let ahead = [("LD_PRELOAD", "./clock.so"), ("BEARWARD_CLOCK", YEAR)];
    let swept = bearward_with_variables(files.path(), &["store", "sweep"], &ahead);
    let progress = String::from_utf8_lossy(&swept.stderr);
    assert!(swept.status.success() && progress.contains("deleted rows: 1 of 1"), "{progress}");
    // The session is still there.
    let next = gateway(&upstream, &keys, &files, &clock);
    assert_eq!(next.refresh(&alice.access, &alice.refresh).await.status, 200);
}

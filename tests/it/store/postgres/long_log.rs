//! A gateway starts with a log of several pages.

use std::time::Duration;

use bearward::store::Store;

use super::following::{Follower, now, sql, token_of};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const OVER: u64 = 5_000;
const ALL: u64 = 15_000;

/// Entries 1 to [`OVER`] have ended two minutes ago, and no sweep has deleted them yet.
fn write_log(server: &PostgresServer, schema: &str) {
    let now = now().as_millis();
    let over = (now - 120_000).to_string();
    let life = LONGEST_LIFE.as_millis();
    let log = format!(
        "insert into revocations (sequence, kind, issuer, name, at, until, tag)
            select n, 'token', 'https://login.example', n::text, u.until - {life}, u.until, decode(md5(n::text), 'hex')
            from generate_series(1, {ALL}) n,
                lateral (select case when n <= {OVER} then {over} else {now} + {life} end as until) u;
        update meta set value = {ALL}, tag = decode(md5('{ALL}'), 'hex') where name = 'revocation_sequence'"
    );
    sql(server, schema, &log);
}

#[tokio::test]
async fn a_start_brings_a_long_log_into_force_and_reads_nothing_that_is_over() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(Follower::open(server, &schema, "first"));
    write_log(server, &schema);
    let gateway = Follower::open(server, &schema, "second");
    gateway.store.freshness().expect("shared").loaded().await;
    let enforced = |from: u64, to: u64| (from..=to).filter(|n| gateway.enforces(&token_of(&n.to_string()))).count();
    assert_eq!(enforced(OVER + 1, ALL), (ALL - OVER) as usize, "all is in force when the log counts as read");
    assert_eq!(enforced(1, OVER), 0);
    assert_eq!(gateway.count(|counts| &counts.applied), ALL);
    assert_eq!(gateway.count(|counts| &counts.gaps) + gateway.count(|counts| &counts.forks), 0);
    let late = gateway.revoke("late").await;
    assert!(gateway.enforces(&late));
}

/// A clock that is ahead by less than its gateways' differ must not hide an entry that another gateway still needs.
#[tokio::test]
async fn a_start_reads_what_has_ended_just_now() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(Follower::open(server, &schema, "first"));
    write_log(server, &schema);
    let just_now = (now() - Duration::from_secs(30)).as_millis();
    sql(server, &schema, &format!("update revocations set until = {just_now} where sequence <= {OVER}"));
    let gateway = Follower::open(server, &schema, "second");
    gateway.store.freshness().expect("shared").loaded().await;
    assert!([1, OVER, ALL].iter().all(|n| gateway.enforces(&token_of(&n.to_string()))));
}

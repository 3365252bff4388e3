//! A gateway starts with a log of several pages.

use std::time::Duration;

use bearward::store::StoreUpkeep;

use super::following::{Follower, now, sql, token_of};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const OVER: u64 = 5_000;
const ALL: u64 = 15_000;

/// A gateway that has read a log of [`ALL`] entries at its start. Those up to [`OVER`] have ended so long ago, and no
/// sweep has deleted them yet.
async fn started(ago: Duration) -> Follower {
    let server = PostgresServer::shared();
    let schema = server.schema();
    drop(Follower::open(server, &schema, "first"));
    let over = (now() - ago).as_millis();
    let now = now().as_millis();
    let life = LONGEST_LIFE.as_millis();
    let log = format!(
        "insert into revocations (sequence, kind, issuer, name, at, until, tag)
            select n, 'token', 'https://login.example', n::text, u.until - {life}, u.until, decode(md5(n::text), 'hex')
            from generate_series(1, {ALL}) n,
                lateral (select case when n <= {OVER} then {over} else {now} + {life} end as until) u;
        update meta set value = {ALL}, tag = decode(md5('{ALL}'), 'hex') where name = 'revocation_sequence'"
    );
    sql(server, &schema, &log);
    let gateway = Follower::open(server, &schema, "second");
    gateway.store.freshness().expect("shared").loaded().await;
    gateway
}

#[tokio::test]
async fn a_start_brings_a_long_log_into_force_and_reads_nothing_that_is_over() {
    let gateway = started(Duration::from_mins(2)).await;
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
    let gateway = started(Duration::from_secs(30)).await;
    assert!([1, OVER, ALL].iter().all(|n| gateway.enforces(&token_of(&n.to_string()))));
}

//! `store.strict`, and what only one of several gateways does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bearward::store::postgres::Database;
use bearward::store::sweep::{SweepTime, sweep};
use bearward::store::{AuditStore, Backlog, Expired, FamilyStore, RevokedBy, SharedClock, StoreUpkeep};
use bearward::tokens::audit_event::Event;
use bearward::types::clock::{Clock, SystemClock};
use tokio::time::timeout;

use super::database;
use super::following::{Follower, now, sql};
use crate::support::clock::ManualClock;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually;

const STALENESS: Duration = Duration::from_secs(3);

fn strict(server: &PostgresServer, schema: &str, replica: &str) -> Follower {
    let mut database = Database { replica: replica.into(), ..database(&server.url(), schema) };
    (database.settings.strict, database.settings.max_staleness) = (true, STALENESS);
    Follower::open_with(database)
}

#[tokio::test]
async fn a_strict_revocation_is_enforced_everywhere_when_it_returns() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let gateways = ["a", "b", "c"].map(|replica| strict(server, &schema, replica));
    for gateway in &gateways {
        gateway.store.freshness().expect("shared").loaded().await;
    }
    for round in 0..6 {
        let what = gateways[round % 3].revoke(&round.to_string()).await;
        assert!(gateways.iter().all(|gateway| gateway.enforces(&what)), "{round}");
        let family = issued(&gateways[0].store, "alice", now()).await;
        gateways[round % 3].store.revoke_family(family.id, RevokedBy::Admin, now().into()).await.expect("it works");
        let what = bearward::tokens::family::revocation::Revoked::Family(family.id);
        assert!(gateways.iter().all(|gateway| gateway.enforces(&what)), "{round}");
    }
}

/// The gateway without a heartbeat stands for one that is stopped: it rejects everything when it goes on.
#[tokio::test]
async fn a_strict_revocation_waits_until_a_silent_gateway_is_stale() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let here = strict(server, &schema, "a");
    here.store.freshness().expect("shared").loaded().await;
    let silent = format!(
        "insert into {schema}.replicas (id, applied, seen_at, version)
         values ('silent', 0, (extract(epoch from clock_timestamp()) * 1000)::bigint, '1')"
    );
    let began = Instant::now();
    server.sql("bearward", &silent);
    here.revoke("1").await;
    // 1 % more, because two clocks differ.
    assert!(began.elapsed() > STALENESS + STALENESS / 100, "{:?}", began.elapsed());
    let began = Instant::now();
    here.revoke("2").await;
    assert!(began.elapsed() < STALENESS, "the silent one rejects everything by now: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_gateway_that_closes_its_store_is_not_waited_for() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (here, other) = (strict(server, &schema, "a"), strict(server, &schema, "b"));
    for gateway in [&here, &other] {
        gateway.store.freshness().expect("shared").loaded().await;
    }
    drop(other);
    assert_eq!(server.sql("bearward", &format!("select id from {schema}.replicas")), "a");
    let began = Instant::now();
    here.revoke("1").await;
    assert!(began.elapsed() < STALENESS, "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_gateway_delivers_events_and_another_follows_it() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (first, second) = (Follower::open(server, &schema, "a"), Follower::open(server, &schema, "b"));
    for name in ["one", "two"] {
        second.store.record(Event::new(name), now().into()).await.expect("the store works");
    }
    let third = Follower::open(server, &schema, "c");
    assert_eq!(third.store.outbox().waiting.load(Ordering::Relaxed), 2, "counted at the start");
    let waiting = || first.store.outbox().waiting.load(Ordering::Relaxed);
    assert_eq!(first.store.undelivered(1).await.expect("the store works").len(), 1);
    assert_eq!(waiting(), 0, "there may be more");
    let events = first.store.undelivered(10).await.expect("the store works");
    assert_eq!((events.len(), waiting()), (2, 2), "these are all");
    assert_eq!(second.store.undelivered(10).await.expect("the store works"), [], "another one delivers");
    second.store.delivered(vec![events[0].sequence]).await.expect("the store works");
    assert_eq!(first.store.undelivered(10).await.expect("the store works").len(), 2, "only the holder deletes");
    first.store.delivered(vec![events[0].sequence]).await.expect("the store works");
    // The first one is paused, and its lease ends.
    server.sql("bearward", &format!("update {schema}.leases set until = 0 where name = 'delivery'"));
    let rest = second.store.undelivered(10).await.expect("the store works");
    assert_eq!(rest, events[1..]);
    first.store.delivered(vec![events[1].sequence]).await.expect("the store works");
    assert_eq!(second.store.undelivered(10).await.expect("the store works"), rest, "the epoch is another one");
    drop(second);
    eventually("the lease is free", || {
        server.sql("bearward", &format!("select count(*) from {schema}.leases where name = 'delivery'")) == "0"
    })
    .await;
    assert_eq!(first.store.undelivered(10).await.expect("the store works"), rest);
}

#[tokio::test]
async fn one_gateway_sweeps() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (first, second) = (Follower::open(server, &schema, "a"), Follower::open(server, &schema, "b"));
    for _ in 0..3 {
        issued(&first.store, "alice", LOGIN).await;
    }
    let clock = ManualClock::new();
    let backlogs = [Backlog::default(), Backlog::default()];
    assert!(first.store.hold_lease("sweep".into()).await.expect("the store works"));
    assert_eq!(
        sweep(&second.store, &clock, &mut SweepTime::default(), &backlogs[1]).await.expect("the store works"),
        0
    );
    assert_eq!(backlogs[1].get(), Expired::default(), "the other gateway counts them");
    let waiting = second.store.expired(clock.now(), 2).await.expect("the store works");
    assert_eq!((waiting.rows, waiting.oldest), (2, Some(LOGIN + LIFETIMES.absolute + LONGEST_LIFE)));
    assert_eq!(sweep(&first.store, &clock, &mut SweepTime::default(), &backlogs[0]).await.expect("the store works"), 3);
    assert_eq!(backlogs[0].get(), Expired::default(), "none is left");
    assert_eq!(backlogs.map(|backlog| backlog.swept()), [3, 0]);
}

/// Without it, the sweep would take minutes.
#[tokio::test]
async fn the_pause_of_a_sweep_follows_the_backlog() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let here = Follower::open(server, &schema, "a");
    let expired = "insert into marks select decode(md5(n::text), 'hex'), 'proof', 'b',
        (extract(epoch from clock_timestamp()) * 1000)::bigint - 3600000, 'c', 0 from generate_series(1, 20000) n";
    sql(server, &schema, expired);
    let freshness = here.store.freshness().expect("shared");
    freshness.loaded().await;
    let clock = SharedClock::new(Arc::new(SystemClock), freshness);
    let backlog = Backlog::default();
    let mut time = SweepTime::default();
    let swept = timeout(Duration::from_secs(30), sweep(&here.store, &clock, &mut time, &backlog));
    let counted = eventually("they are counted", || backlog.get().rows == 20_000);
    let (swept, ()) = tokio::join!(swept, counted);
    assert_eq!(swept.expect("in time").expect("the store works"), 20_000);
    assert_eq!(backlog.get(), Expired::default());
}

//! A gateway follows what other gateways write: revocations, whatever happens to the database.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bearward::store::postgres::{Database, PostgresStore};
use bearward::store::{FamilyStore, KeyStore, RevocationHook, RevocationStore, RevokedBy, StoreUpkeep};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::signing::StoredKey;
use bearward::types::clock::{Clock, SystemClock, UnixTime};

use super::{PATIENCE, database};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;
use crate::support::wait::{eventually, eventually_within};

/// A store, and what it enforces.
pub(super) struct Follower {
    pub(super) store: PostgresStore,
    enforced: Arc<Mutex<HashSet<Revoked>>>,
}

impl Follower {
    pub(super) fn open(server: &PostgresServer, schema: &str, replica: &str) -> Follower {
        Self::open_with(Database { replica: replica.into(), ..database(&server.url(), schema) })
    }

    pub(super) fn open_with(database: Database) -> Follower {
        let enforced: Arc<Mutex<HashSet<Revoked>>> = Arc::default();
        let seen = enforced.clone();
        let enforce: RevocationHook = Arc::new(move |revocation: &Revocation, _| {
            seen.lock().expect("not poisoned").insert(revocation.what.clone());
        });
        let store = PostgresStore::open(database, settings(), enforce, PATIENCE, now()).expect("the store opens");
        Follower { store, enforced }
    }

    pub(super) fn enforces(&self, what: &Revoked) -> bool {
        self.enforced.lock().expect("not poisoned").contains(what)
    }

    pub(super) async fn revoke(&self, jti: &str) -> Revoked {
        let what = token_of(jti);
        self.store.revoke(what.clone(), now().into()).await.expect("the store works");
        what
    }

    pub(super) fn count(&self, count: fn(&bearward::store::FollowerCounts) -> &std::sync::atomic::AtomicU64) -> u64 {
        let freshness = self.store.freshness().expect("the store is shared");
        count(&freshness.counts).load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The follower compares times with those of the database.
pub(super) fn now() -> UnixTime {
    SystemClock.now()
}

pub(super) fn token_of(jti: &str) -> Revoked {
    Revoked::Token { issuer: "https://login.example".into(), jti: jti.into() }
}

pub(super) fn sql(server: &PostgresServer, schema: &str, sql: &str) -> String {
    server.sql("bearward", &format!("set search_path = {schema}; {sql}"))
}

#[tokio::test]
async fn a_revocation_reaches_the_other_gateways() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let gateways = ["a", "b", "c"].map(|replica| Follower::open(server, &schema, replica));
    for round in 0..10 {
        let what = gateways[round % 3].revoke(&round.to_string()).await;
        eventually_within(Duration::from_secs(5), "all enforce it", async || {
            gateways.iter().all(|gateway| gateway.enforces(&what)).then_some(()).ok_or(String::new())
        })
        .await;
    }
    let family = issued(&gateways[0].store, "alice", now()).await;
    gateways[1].store.revoke_family(family.id, RevokedBy::Admin, now().into()).await.expect("the store works");
    eventually("the third one enforces it", || gateways[2].enforces(&Revoked::Family(family.id))).await;
    for gateway in &gateways {
        eventually("it has applied all", || gateway.count(|counts| &counts.applied) == 11).await;
        assert_eq!(gateway.count(|counts| &counts.gaps) + gateway.count(|counts| &counts.forks), 0);
    }
}

/// The notification shortens the wait for the next poll.
#[tokio::test]
async fn a_notification_makes_it_a_matter_of_milliseconds() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (here, there) = (Follower::open(server, &schema, "a"), Follower::open(server, &schema, "b"));
    here.store.freshness().expect("shared").loaded().await;
    let mut delays = Vec::new();
    for round in 0..20 {
        let began = Instant::now();
        let what = there.revoke(&round.to_string()).await;
        eventually("it is enforced", || here.enforces(&what)).await;
        delays.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    delays.sort();
    // Each round begins just after a poll: without a notification it takes until the next one, 250 ms later.
    assert!(delays[10] < Duration::from_millis(120), "{delays:?}");
}

/// Another gateway can see a token that the new key signed at once.
#[tokio::test]
async fn a_new_signing_key_is_noticed_within_milliseconds() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (here, there) = (Follower::open(server, &schema, "a"), Follower::open(server, &schema, "b"));
    let freshness = here.store.freshness().expect("shared");
    freshness.loaded().await;
    let (mut news, mut delays) = (freshness.keys(), Vec::new());
    for round in 0..20 {
        news.borrow_and_update();
        let began = Instant::now();
        let key = signing_key(&round.to_string());
        let change = there.store.change_signing_keys(Box::new(move |_| vec![key.clone()]), now().into());
        change.await.expect("the store works");
        news.changed().await.expect("the store is open");
        delays.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    delays.sort();
    assert!(delays[10] < Duration::from_millis(120), "{delays:?}");
}

fn signing_key(kid: &str) -> StoredKey {
    StoredKey {
        kid: kid.into(),
        algorithm: "ES256".into(),
        root: 1,
        sealed: Vec::new(),
        created_at: now(),
        activated_at: None,
        retired_at: None,
        revoked_at: None,
        token_life: Duration::from_secs(900),
    }
}

#[tokio::test]
async fn a_gateway_without_news_polls_a_few_times_a_second() {
    let server = PostgresServer::shared();
    let here = Follower::open(server, &server.schema(), "a");
    let freshness = here.store.freshness().expect("shared");
    freshness.loaded().await;
    let (began, mut polls) = (Instant::now(), HashSet::new());
    while began.elapsed() < Duration::from_secs(1) {
        polls.insert(freshness.polled_at().as_micros());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(polls.len() <= 10, "{polls:?}");
}

#[tokio::test]
async fn a_check_writes_to_the_tables() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let here = Follower::open(server, &schema, "a");
    here.store.check().await.expect("the store works");
    sql(server, &schema, "alter table replicas rename to moved");
    assert!(here.store.check().await.is_err());
}

#[tokio::test]
async fn a_gateway_that_starts_knows_every_revocation_first() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let there = Follower::open(server, &schema, "a");
    let mut all = Vec::new();
    for number in 0..20 {
        all.push(there.revoke(&number.to_string()).await);
    }
    let here = Follower::open(server, &schema, "b");
    here.store.freshness().expect("shared").loaded().await;
    assert!(all.iter().all(|what| here.enforces(what)));
    assert!(!here.store.freshness().expect("shared").is_stale());
}

#[tokio::test]
async fn lost_connections_lose_no_revocation() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let (here, there) = (Follower::open(server, &schema, &schema), Follower::open(server, &schema, "other"));
    for round in 0..5 {
        server.terminate_connections(&format!("bearward/{schema}"));
        let what = there.revoke(&round.to_string()).await;
        eventually("it is enforced", || here.enforces(&what)).await;
    }
}

/// As after a failover to a standby that lagged: the last entries are gone, and others have their numbers.
#[tokio::test]
async fn a_database_that_was_rolled_back_gets_its_revocations_again() {
    let server = PostgresServer::shared();
    let schema = server.schema();
    let gateways = ["a", "b"].map(|replica| Follower::open(server, &schema, replica));
    let mut all = vec![gateways[0].revoke("0").await];
    let family = issued(&gateways[0].store, "alice", now()).await;
    for number in 1..4 {
        all.push(gateways[number % 2].revoke(&number.to_string()).await);
    }
    gateways[0].store.revoke_family(family.id, RevokedBy::Admin, now().into()).await.expect("the store works");
    all.push(Revoked::Family(family.id));
    for gateway in &gateways {
        eventually("all are enforced", || all.iter().all(|what| gateway.enforces(what))).await;
    }
    // Back to the first entry; a third gateway then writes two others.
    let rollback = "begin; delete from revocations where sequence > 1;
        update families set revoked_at = null, revoked_reason = null;
        update meta set value = 1, tag = (select tag from revocations where sequence = 1)
            where name = 'revocation_sequence';
        with other as (
            insert into revocations (sequence, kind, issuer, name, not_after, at, until, tag)
            select n, 'token', 'https://login.example', 'other' || n, null, r.at, r.until, decode(md5(n::text), 'hex')
            from revocations r, generate_series(2, 3) n where r.sequence = 1 returning sequence, tag
        )
        update meta set value = 3, tag = (select tag from other where sequence = 3) where name = 'revocation_sequence';
        commit";
    sql(server, &schema, rollback);
    all.extend([token_of("other2"), token_of("other3")]);
    for gateway in &gateways {
        eventually("the new ones are enforced", || all.iter().all(|what| gateway.enforces(what))).await;
        eventually("it was noticed", || gateway.count(|counts| &counts.forks) == 1).await;
    }
    eventually_within(Duration::from_secs(10), "the database has all again", async || {
        let log = gateways[0].store.revocations_since(0).await.expect("the store works");
        let log: HashSet<Revoked> = log.into_iter().map(|entry| entry.what).collect();
        all.iter().all(|what| log.contains(what)).then_some(()).ok_or(format!("{log:?}"))
    })
    .await;
    assert!(stored(&gateways[1].store, &family).await.revoked.is_some(), "the session has ended again");
    let late = gateways[1].revoke("late").await;
    eventually("following goes on", || gateways[0].enforces(&late)).await;
    assert_eq!(sql(server, &schema, "select count(*) = max(sequence) from revocations"), "t", "without gaps");
}

#[tokio::test]
async fn a_gateway_that_is_cut_off_is_stale_until_it_can_poll_again() {
    let mut server = PostgresServer::start();
    let schema = server.schema();
    let mut short = database(&server.url(), &schema);
    short.settings.max_staleness = Duration::from_secs(2);
    let here = Follower::open_with(short);
    let freshness = here.store.freshness().expect("shared");
    freshness.loaded().await;
    assert!(!freshness.is_half_stale() && freshness.not_ready().is_none());
    let known = here.revoke("1").await;
    server.kill();
    eventually("it becomes not ready", || freshness.is_half_stale()).await;
    assert!(!freshness.is_stale() && freshness.not_ready().is_some(), "not ready comes first");
    eventually("it becomes stale", || freshness.is_stale()).await;
    server.restart();
    eventually_within(Duration::from_secs(20), "it heals alone", async || {
        (!freshness.is_half_stale()).then_some(()).ok_or(String::new())
    })
    .await;
    assert!(here.enforces(&known));
    let (offset, error) =
        (Duration::from_micros(freshness.store_time.offset().unsigned_abs()), freshness.store_time.error());
    assert!(offset <= error + Duration::from_millis(1), "{offset:?}, {error:?}");
}

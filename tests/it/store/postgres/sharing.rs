//! Two gateways on one database: every decision is made once, and the log has one order.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bearward::store::postgres::PostgresStore;
use bearward::store::{
    AuditStore, FamilyStore, KeyStore, LogOrder, RevocationHook, RevocationStore, RevokeOutcome, RevokedBy,
    StoreOptions, StoreUpkeep,
};
use bearward::tokens::audit_event::Event;
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::tokens::family::{Family, RevokeReason};
use bearward::tokens::signing::StoredKey;
use bearward::types::ids::TokenId;
use tokio::task::JoinSet;

use super::following::Follower;
use super::{open, try_open};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually;

/// Two stores with the same tables, and the name of their schema.
fn two_gateways() -> ([PostgresStore; 2], String) {
    let schema = PostgresServer::shared().schema();
    ([open(&schema), open(&schema)], schema)
}

fn sql(schema: &str, sql: &str) -> String {
    PostgresServer::shared().sql("bearward", &format!("set search_path = {schema}; {sql}"))
}

fn revoked_token(jti: String) -> Revoked {
    Revoked::Token { issuer: "https://login.example".into(), jti }
}

/// A gateway reads the whole log at its start, page by page.
#[tokio::test]
async fn each_page_of_a_long_log_is_read() {
    let ([store, _], schema) = two_gateways();
    let many = "insert into revocations (sequence, kind, issuer, name, not_after, at, until, tag)
        select n, 'token', 'https://login.example', n::text, null, 0, 9000000000000, decode(md5(n::text), 'hex')
        from generate_series(1, 8200) n";
    sql(&schema, many);
    let log = store.revocations_since(0).await.expect("the store works");
    assert!(log.iter().map(|entry| entry.sequence).eq(1..=8200), "{}", log.len());
}

/// One gateway polls an event stream.
#[tokio::test]
async fn a_lease_is_held_by_one_gateway() {
    let (server, schema) = (PostgresServer::shared(), PostgresServer::shared().schema());
    let (one, other) = (Follower::open(server, &schema, "a"), Follower::open(server, &schema, "b"));
    let hold =
        async |gateway: &Follower, name: &str| gateway.store.hold_lease(name.into()).await.expect("the store works");
    assert!(hold(&one, "event_stream a").await);
    assert!(!hold(&other, "event_stream a").await);
    assert!(hold(&other, "event_stream b").await, "another lease");
    assert!(hold(&one, "event_stream a").await, "renewed");
    // The first one does not renew it in time.
    sql(&schema, "update leases set until = 0 where name = 'event_stream a'");
    assert!(hold(&other, "event_stream a").await);
    assert!(!hold(&one, "event_stream a").await);
    // The clock was set back by an hour, and the other one is gone.
    sql(&schema, "update leases set until = until + 3600000 where name = 'event_stream a'");
    assert!(hold(&one, "event_stream a").await);
    assert!(!hold(&other, "event_stream a").await);
}

#[tokio::test]
async fn one_token_refreshed_through_both_rotates_once() {
    let (stores, _) = two_gateways();
    for _ in 0..10 {
        let family = issued(&stores[0], "alice", LOGIN).await;
        let refreshes = (0..64).map(|tab| stores[tab % 2].rotate(token(&family, 1), at(LOGIN), LOGIN.into()));
        let mut tabs: JoinSet<_> = refreshes.collect();
        let (mut rotations, mut children) = (0, HashSet::new());
        while let Some(response) = tabs.join_next().await {
            match response.expect("no panic").expect("the store works") {
                Rotation::Rotated(child) => {
                    rotations += 1;
                    children.insert(current_token(&child));
                }
                Rotation::Replayed(child) => {
                    children.insert(current_token(&child));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((rotations, children.len()), (1, 1));
        assert_eq!(stored(&stores[1], &family).await.generation, 2);
    }
}

#[tokio::test]
async fn a_chain_of_refreshes_goes_on_through_any_gateway() {
    let (stores, _) = two_gateways();
    let family = issued(&stores[0], "alice", LOGIN).await;
    for generation in 1..20 {
        let next = rotated(&stores[generation as usize % 2], &family, generation, LOGIN).await;
        assert_eq!(next.generation, generation + 1);
    }
    let reused = refresh(&stores[1], &family, 3, LOGIN + AFTER_GRACE).await;
    assert!(matches!(reused, Rotation::Reused(_)), "{reused:?}");
}

#[tokio::test]
async fn revocations_at_the_same_time_have_one_order_without_gaps() {
    const EACH: usize = 300;
    let (stores, schema) = two_gateways();
    let mut families = Vec::new();
    for _ in 0..20 {
        families.push(issued(&stores[0], "alice", LOGIN).await);
    }
    let mut calls: JoinSet<_> = JoinSet::new();
    for number in 0..EACH {
        for (name, store) in ["a", "b"].iter().zip(&stores) {
            calls.spawn(store.revoke(revoked_token(format!("{name}{number}")), LOGIN.into()));
        }
    }
    // Both gateways end the same sessions, in opposite order.
    let ends = |store: &PostgresStore, family: &Family| store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into());
    let mut ended: JoinSet<_> = families.iter().map(|family| ends(&stores[0], family)).collect();
    families.iter().rev().for_each(|family| {
        ended.spawn(ends(&stores[1], family));
    });
    let mut sequences = HashSet::new();
    while let Some(sequence) = calls.join_next().await {
        assert!(sequences.insert(sequence.expect("no panic").expect("the store works")), "a number is used twice");
    }
    let mut revoked = 0;
    while let Some(outcome) = ended.join_next().await {
        revoked += usize::from(outcome.expect("no panic").expect("the store works") == RevokeOutcome::Revoked);
    }
    assert_eq!(revoked, families.len(), "each session is ended by one call");

    let log = stores[1].revocations_since(0).await.expect("the store works");
    assert_eq!(log.len(), 2 * EACH + families.len());
    assert!(log.iter().zip(1..).all(|(entry, place)| entry.sequence == place), "the log has a gap");
    let newest = sql(
        &schema,
        "select value || ' ' || (tag = (select tag from revocations order by sequence desc limit 1))
        from meta where name = 'revocation_sequence'",
    );
    assert_eq!(newest, format!("{} true", log.len()));
    assert_eq!(sql(&schema, "select count(distinct tag) from revocations"), log.len().to_string());
    // What waits is written together: with a transaction for each entry, the disk would be the limit.
    let transactions: usize =
        sql(&schema, "select count(distinct xmin::text) from revocations").parse().expect("a number");
    assert!(transactions * 4 < log.len(), "{transactions} transactions for {} entries", log.len());
}

#[tokio::test]
async fn a_session_that_another_gateway_ended_is_enforced_here() {
    let schema = PostgresServer::shared().schema();
    let enforced: Arc<Mutex<Vec<Revocation>>> = Arc::default();
    let seen = enforced.clone();
    let enforce: RevocationHook = Arc::new(move |revocation: &Revocation, order| {
        // The follower tells of all, in order.
        if order == LogOrder::Ahead {
            seen.lock().expect("not poisoned").push(revocation.clone());
        }
    });
    let here = try_open(PostgresServer::shared(), &schema, settings(), enforce).expect("the store opens");
    let there = open(&schema);
    let (ended, reused) = (issued(&there, "alice", LOGIN).await, issued(&there, "alice", LOGIN).await);
    there.revoke_family(ended.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    there.revoke_family(reused.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");

    let outcome = here.revoke_family(ended.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    assert_eq!(outcome, RevokeOutcome::AlreadyEnded);
    rejection(&here, &reused, 1, LOGIN).await;
    let mut enforced: Vec<_> = enforced.lock().expect("not poisoned").drain(..).collect();
    assert_eq!(
        enforced.iter().map(|each| each.what.clone()).collect::<Vec<_>>(),
        [Revoked::Family(ended.id), Revoked::Family(reused.id)]
    );
    let log = here.revocations_since(0).await.expect("the store works");
    enforced.iter_mut().zip(&log).for_each(|(early, entry)| early.sequence = entry.sequence);
    assert_eq!(enforced, log, "for as long as the entry of the log");
}

#[tokio::test]
async fn two_gateways_create_one_key() {
    for _ in 0..10 {
        let (stores, schema) = two_gateways();
        let create = |store: &PostgresStore, kid: &'static str| {
            let new = StoredKey {
                kid: kid.into(),
                algorithm: "ES256".into(),
                root: 1,
                sealed: vec![1],
                created_at: LOGIN,
                activated_at: None,
                retired_at: None,
                revoked_at: None,
                token_life: LONGEST_LIFE,
            };
            store.change_signing_keys(
                Box::new(move |keys| if keys.is_empty() { vec![new.clone()] } else { keys }),
                LOGIN.into(),
            )
        };
        let (one, other) = tokio::join!(create(&stores[0], "a"), create(&stores[1], "b"));
        let (one, other) = (one.expect("the store works"), other.expect("the store works"));
        assert_eq!((one.after.len(), &one.after), (1, &other.after));
        assert_eq!(sql(&schema, "select count(*) from audit"), "1", "one event for one key");
        assert_eq!(sql(&schema, "select value from meta where name = 'signing_keys'"), "1");
    }
}

#[tokio::test]
async fn confirmations_in_opposite_order_do_not_fail() {
    let (stores, _) = two_gateways();
    let mut families = Vec::new();
    for _ in 0..100 {
        families.push(issued(&stores[0], "alice", LOGIN).await);
    }
    for generation in 1..4 {
        for family in &families {
            rotated(&stores[0], family, generation, LOGIN).await;
        }
        let seen: Vec<(TokenId, u64)> = families.iter().map(|family| (family.id, generation + 1)).collect();
        let mut reversed = seen.clone();
        reversed.reverse();
        let (one, other) = tokio::join!(stores[0].confirm(seen), stores[1].confirm(reversed));
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    }
    for family in &families {
        assert_eq!(stored(&stores[1], family).await.confirmed, 4);
    }
}

#[tokio::test]
async fn the_limit_of_sessions_holds_over_all_gateways() {
    let (stores, _) = two_gateways();
    let mut families = Vec::new();
    for count in 0..7 {
        let now = LOGIN + std::time::Duration::from_secs(count);
        let issued = stores[count as usize % 2].issue(login("alice", now), 3, now.into()).await;
        families.push(issued.expect("the store works").expect("issued"));
    }
    for (number, family) in families.iter().enumerate() {
        let reason = stored(&stores[0], family).await.revoked.map(|revoked| revoked.reason);
        assert_eq!(reason, (number < 4).then_some(RevokeReason::Limit), "session {number}");
    }
}

#[tokio::test]
async fn the_limit_of_undelivered_events_holds_over_all_gateways() {
    let schema = PostgresServer::shared().schema();
    let open = || {
        let limited = StoreOptions { audit: 10, ..settings() };
        try_open(PostgresServer::shared(), &schema, limited, Arc::new(|_, _| {})).expect("the store opens")
    };
    let (one, other) = (open(), open());
    other.record(Event::new("first"), LOGIN.into()).await.expect("the store works");
    for _ in 0..9 {
        one.record(Event::new("full"), LOGIN.into()).await.expect("the store works");
    }
    // It counts them once a second.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    other.record(Event::new("lost"), LOGIN.into()).await.expect("the store works");
    assert_eq!(other.outbox().lost.load(Ordering::Relaxed), 1);
    assert_eq!(one.undelivered(100).await.expect("the store works").len(), 10);
}

/// The clock was set back after these logins. They are too many for one transaction.
#[tokio::test]
async fn a_watermark_of_now_ends_any_number_of_later_sessions() {
    const COUNT: usize = 1_300;
    let ([store, _], schema) = two_gateways();
    let later = LOGIN + GRACE;
    let logins: JoinSet<_> = (0..COUNT).map(|_| store.issue(login("alice", later), ANY, later.into())).collect();
    assert!(logins.join_all().await.iter().all(Result::is_ok));
    store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("the store works");
    assert_eq!(sql(&schema, "select count(*) from families where revoked_at is null"), "0");
    assert_eq!(store.revocations_since(0).await.expect("the store works").len(), COUNT + 1);
}

/// A confirmation is not worth a flush. Everything else is.
#[tokio::test]
async fn only_confirmations_are_committed_without_a_flush() {
    let server = PostgresServer::start_with(&["wal_writer_delay=10s", "wal_writer_flush_after=0"], "trust");
    let schema = server.schema();
    let store = try_open(&server, &schema, settings(), Arc::new(|_, _| {})).expect("the store opens");
    let unflushed = || {
        let text = server.sql("postgres", "select pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() > 0");
        text == "t"
    };
    let family = issued(&store, "alice", LOGIN).await;
    eventually("a login is flushed", || !unflushed()).await;
    rotated(&store, &family, 1, LOGIN).await;
    eventually("a refresh is flushed", || !unflushed()).await;
    // A heartbeat may flush it, too.
    let mut waits = false;
    for generation in 2..12 {
        store.confirm(vec![(family.id, generation)]).await.expect("the store works");
        waits |= unflushed();
        rotated(&store, &family, generation, LOGIN).await;
        eventually("a refresh is flushed", || !unflushed()).await;
    }
    assert!(waits, "a confirmation is not");
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    eventually("a revocation is flushed", || !unflushed()).await;
    assert_eq!(stored(&store, &family).await.confirmed, 11);
}

//! Faults of the server in the middle of changes: nothing that was acknowledged is lost, and no change is made twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bearward::store::{RevokeOutcome, RevokedBy, Store, StoreFuture};
use bearward::tokens::family::Family;
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::rotation::Rotation;
use bearward::types::clock::UnixTime;
use futures_util::future::join_all;
use serde_json::Value;

use super::try_open;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const CLIENTS: usize = 8;
/// Longer than any outage of these tests.
const OUTAGE: Duration = Duration::from_secs(60);

/// What one client knows from its responses.
#[derive(Default)]
struct Acknowledged {
    families: Vec<Family>,
    tokens: Vec<(u64, String)>,
    /// Calls that failed, so that the client could not know their outcome.
    failures: usize,
}

/// Repeats a call until it works, as a client does. `call` gets the time of the attempt: each comes after the grace
/// period of the last one, so that only the rules for lost responses help.
async fn until_ok<T>(failures: &mut usize, began: UnixTime, call: impl Fn(UnixTime) -> StoreFuture<T>) -> T {
    let (mut now, first) = (began, Instant::now());
    loop {
        match call(now).await {
            Ok(value) => return value,
            Err(error) => {
                assert!(first.elapsed() < OUTAGE, "{error}");
                *failures += 1;
                now = now + AFTER_GRACE;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Logs in, refreshes, logs out and revokes a token, again and again: at least twice, however slow the machine is.
async fn work(store: &dyn Store, stop: &AtomicBool) -> Acknowledged {
    let (mut told, mut now) = (Acknowledged::default(), LOGIN);
    while !stop.load(Ordering::Relaxed) || told.families.len() < 2 {
        let failures = &mut told.failures;
        let new = login("alice", now);
        // A login that is repeated by the client is another login, so this one counts only if it is acknowledged.
        let Ok(issued) = store.issue(new, ANY, now.into()).await else {
            *failures += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut family = issued.expect("no watermark");
        for generation in 1..4 {
            let expected = current_token(&Family { generation: generation + 1, ..family.clone() });
            let refreshed =
                until_ok(failures, now, |now| store.rotate(token(&family, generation), at(now), now.into()));
            family = match refreshed.await {
                Rotation::Rotated(next) | Rotation::Replayed(next) | Rotation::Recovered(next) => next,
                other => panic!("generation {generation} was refreshed: {other:?}"),
            };
            assert_eq!(current_token(&family), expected, "a repeated refresh gets the same child");
        }
        let outcome =
            until_ok(failures, now, |now| store.revoke_family(family.id, RevokedBy::Owner("alice".into()), now.into()));
        assert!(matches!(outcome.await, RevokeOutcome::Revoked | RevokeOutcome::AlreadyEnded));
        let jti = family.id.to_string();
        let revoked = Revoked::Token { issuer: ISSUER.into(), jti: jti.clone() };
        let sequence = until_ok(failures, now, |now| store.revoke(revoked.clone(), now.into())).await;
        told.tokens.push((sequence, jti));
        told.families.push(family);
        now = now + Duration::from_secs(1);
    }
    told
}

/// Lets clients work during `faults`, and then compares.
async fn survive(server: &mut PostgresServer, faults: impl FnOnce(&mut PostgresServer)) -> Acknowledged {
    let schema = server.schema();
    let unlimited = bearward::store::StoreOptions { audit: 1_000_000, ..settings() };
    let opened = try_open(server, &schema, unlimited, Arc::new(|_, _| {}));
    let store: Arc<dyn Store> = Arc::new(opened.expect("the store opens"));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = std::thread::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(join_all((0..CLIENTS).map(|_| work(&*store, &stop))))
        }
    });
    faults(server);
    stop.store(true, Ordering::Relaxed);
    let mut told = Acknowledged::default();
    for client in clients.join().expect("no panic") {
        told.families.extend(client.families);
        told.tokens.extend(client.tokens);
        told.failures += client.failures;
    }
    assert!(told.families.len() > CLIENTS, "the clients did too little: {}", told.families.len());
    compare(&*store, &told).await;
    let open_transactions = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    assert_eq!(server.sql("postgres", open_transactions), "0");
    told
}

async fn compare(store: &dyn Store, told: &Acknowledged) {
    let log = store.revocations_since(0).await.expect("reads");
    assert!(log.iter().zip(1..).all(|(entry, place)| entry.sequence == place), "the log has a gap");
    for (sequence, jti) in &told.tokens {
        let entry = log.get(*sequence as usize - 1).expect("an acknowledged entry is there");
        assert_eq!(entry.what, Revoked::Token { issuer: ISSUER.into(), jti: jti.clone() });
    }
    for family in &told.families {
        let stored = stored(store, family).await;
        assert_eq!(stored.generation, family.generation, "three refreshes were acknowledged");
        assert!(stored.revoked.is_some());
        let entries = log.iter().filter(|entry| entry.what == Revoked::Family(family.id)).count();
        assert_eq!(entries, 1, "one entry for the end of one session");
    }
    compare_events(&store.undelivered(1_000_000).await.expect("reads"), told);
}

/// Each change has one event, however often it was tried.
fn compare_events(events: &[bearward::tokens::audit_event::Recorded], told: &Acknowledged) {
    let lines: Vec<Value> = events.iter().map(|event| serde_json::from_str(&event.line()).expect("JSON")).collect();
    for family in &told.families {
        let id = family.id.to_string();
        let of_family =
            |name: &str| lines.iter().filter(|line| line["token_id"] == id.as_str() && line["event"] == name).count();
        let counts = ["token.issued", "token.refreshed", "token.revoked", "refresh.reuse_detected"].map(of_family);
        assert_eq!(counts, [1, 3, 1, 0], "{id}");
    }
}

#[tokio::test]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let pause = || std::thread::sleep(Duration::from_millis(300));
    let told = survive(&mut server, |server| {
        for _ in 0..2 {
            pause();
            server.kill();
            server.restart();
        }
        pause();
        server.kill();
        // Longer than the store waits for a connection.
        std::thread::sleep(Duration::from_secs(2));
        server.restart();
        pause();
    })
    .await;
    assert!(told.failures > 0, "no call failed while the server was away");
}

/// Calls are repeated by the store itself, so that most of them do not even fail.
#[tokio::test]
async fn connections_that_break_all_the_time_change_nothing_twice() {
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    survive(&mut server, |server| {
        let (mut broken, began) = (0, Instant::now());
        while began.elapsed() < Duration::from_secs(3) {
            broken += server.terminate_connections("bearward");
            std::thread::sleep(Duration::from_millis(30));
        }
        assert!(broken > 20, "{broken} connections were broken");
    })
    .await;
}

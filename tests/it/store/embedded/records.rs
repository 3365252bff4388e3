//! What the embedded store keeps over restarts, changed settings and lost callers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bearward::store::sqlite::{Settings, SqliteStore};
use bearward::store::{LogOrder, RevocationHook, RevokedBy, Store};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::types::reject::Reason;

use super::super::given::*;
use super::{LOCK_TIMEOUT, database_path, open};

#[tokio::test]
async fn everything_is_kept_over_a_restart() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let living = rotated(&store, &family, 1, LOGIN).await;
    let stolen = issued(&store, "bob", LOGIN).await;
    rotated(&store, &stolen, 1, LOGIN).await;
    store.confirm(vec![(stolen.id, 2)]).await.expect("confirms");
    assert!(matches!(refresh(&store, &stolen, 1, LOGIN + AFTER_GRACE).await, Rotation::Reused(_)));
    store.revoke(Revoked::Everything { not_after: LOGIN - GRACE }, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0, LOGIN).await.expect("reads");
    drop(store);

    let store = open(&path);
    assert_eq!(stored(&store, &family).await, living);
    assert_eq!(rejection(&store, &stolen, 2, LOGIN + AFTER_GRACE).await, Reason::GrantRevoked, "the reuse is kept");
    assert_eq!(store.revocations_since(0, LOGIN).await.expect("reads"), log);
    let next = store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("revokes");
    assert_eq!(next, log.len() as u64 + 1);
}

#[tokio::test]
async fn an_operation_is_completed_even_if_its_caller_is_gone() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    drop(store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()));
    drop(store);
    assert!(stored(&open(&path), &family).await.revoked.is_some());
}

#[tokio::test]
async fn a_revocation_is_enforced_before_its_caller_is_answered() {
    let (_folder, path) = database_path();
    let enforced: Arc<Mutex<Vec<Revocation>>> = Arc::default();
    let seen = enforced.clone();
    let enforce: RevocationHook = Arc::new(move |revocation: &Revocation, order| {
        assert_eq!(order, LogOrder::InOrder);
        // Delays the enforcement, so that a response that does not wait for it would come first.
        std::thread::sleep(Duration::from_millis(20));
        seen.lock().expect("not poisoned").push(revocation.clone());
    });
    let store = SqliteStore::open_within(
        LOCK_TIMEOUT,
        path,
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 1_000 },
        enforce,
    )
    .expect("opens");
    let family = issued(&store, "alice", LOGIN).await;
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0, LOGIN).await.expect("reads");
    assert_eq!(*enforced.lock().expect("not poisoned"), log);
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn a_shorter_access_lifetime_keeps_older_tokens_revocable() {
    let (_folder, path) = database_path();
    for (configured, remembered) in [(3_600, 3_600), (300, 3_600), (7_200, 7_200)] {
        let settings = Settings {
            issuer: ISSUER.into(),
            longest_life: Duration::from_secs(configured),
            longest_family: LONGEST_FAMILY,
            audit: 1_000,
        };
        let store = SqliteStore::open_within(LOCK_TIMEOUT, &path, settings, Arc::new(|_, _| {})).expect("opens");
        let revoked = Revoked::Token { issuer: "https://login.example".into(), jti: configured.to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1, LOGIN).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + Duration::from_secs(remembered));
    }
}

#[tokio::test]
async fn a_shorter_family_lifetime_keeps_older_tokens_revocable() {
    let (_folder, path) = database_path();
    let hour = Duration::from_secs(3_600);
    for (configured, remembered) in [(48 * hour, 48 * hour), (24 * hour, 48 * hour), (72 * hour, 72 * hour)] {
        let settings =
            Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: configured, audit: 1_000 };
        let store = SqliteStore::open_within(LOCK_TIMEOUT, &path, settings, Arc::new(|_, _| {})).expect("opens");
        let revoked = Revoked::Token { issuer: ISSUER.into(), jti: configured.as_secs().to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1, LOGIN).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + remembered);
    }
}

/// A gap in the sequence numbers shows how many events are missing.
#[tokio::test]
async fn events_beyond_the_limit_are_lost_and_leave_a_gap() {
    let (_folder, path) = database_path();
    let settings =
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 3 };
    let store = SqliteStore::open_within(LOCK_TIMEOUT, &path, settings.clone(), Arc::new(|_, _| {})).expect("opens");
    for _ in 0..5 {
        issued(&store, "alice", LOGIN).await;
    }
    let sequence = async |store: &SqliteStore| {
        let events = store.undelivered(10).await.expect("reads");
        events.iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequence(&store).await, [1, 2, 3]);
    let lost = store.outbox().lost.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((lost, store.families_of("alice".into()).await.expect("reads").len()), (2, 5), "the logins are stored");
    drop(store);
    let store = SqliteStore::open_within(LOCK_TIMEOUT, &path, settings, Arc::new(|_, _| {})).expect("opens");
    assert_eq!(
        store.outbox().waiting.load(std::sync::atomic::Ordering::Relaxed),
        3,
        "undelivered events survive a restart"
    );
    store.delivered(vec![1, 2, 3]).await.expect("writes");
    issued(&store, "alice", LOGIN).await;
    assert_eq!(sequence(&store).await, [6]);
}

/// The sequence numbers of lost events are gaps. They take no room.
#[tokio::test]
async fn a_gap_in_the_outbox_takes_no_room() {
    let (_folder, path) = database_path();
    let settings =
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 100 };
    let open = || {
        SqliteStore::open_within(LOCK_TIMEOUT, &path, settings.clone(), Arc::new(|_, _| {})).expect("the file opens")
    };
    let store = open();
    for _ in 0..300 {
        issued(&store, "alice", LOGIN).await;
    }
    store.delivered((1..=99).collect()).await.expect("writes");
    let counts = |store: &SqliteStore| {
        let outbox = store.outbox();
        [&outbox.waiting, &outbox.lost].map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
    };
    assert_eq!(counts(&store), [1, 200], "one event waits before the gap");
    for _ in 0..99 {
        issued(&store, "alice", LOGIN).await;
    }
    assert_eq!(counts(&store), [100, 200], "all 99 free places are used");
    drop(store);
    let store = open();
    issued(&store, "alice", LOGIN).await;
    assert_eq!(counts(&store), [100, 1], "and the outbox is full after a restart, too");
    let events = store.undelivered(1_000).await.expect("reads");
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [100].into_iter().chain(301..400).collect::<Vec<_>>());
}

/// Families and watermarks still count after the operator changes `tokens.issuer`.
#[tokio::test]
async fn a_watermark_survives_a_change_of_the_issuers_name() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let what = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: LOGIN };
    store.revoke(what, LOGIN.into()).await.expect("revokes");
    drop(store);

    let settings = Settings {
        issuer: "https://new.example".into(),
        longest_life: LONGEST_LIFE,
        longest_family: LONGEST_FAMILY,
        audit: 1_000,
    };
    let store = SqliteStore::open_within(LOCK_TIMEOUT, &path, settings, Arc::new(|_, _| {})).expect("opens");
    assert_eq!(rejection(&store, &family, 1, LOGIN).await, Reason::GrantRevoked);
}

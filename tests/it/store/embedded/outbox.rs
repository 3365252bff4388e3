//! The sequence numbers of the audit events of the embedded store: a gap tells of lost events.

use std::sync::Arc;

use bearward::store::sqlite::{SqliteStore, StoreOptions};
use bearward::store::{AuditStore, FamilyStore};

use super::{database_path, open};
use crate::support::gateway::LOCK_TIMEOUT;
use crate::support::given::*;

/// A gap in the sequence numbers shows how many events are missing.
#[tokio::test]
async fn events_beyond_the_limit_are_lost_and_leave_a_gap() {
    let (_folder, path) = database_path();
    let settings = StoreOptions { audit: 3, ..settings() };
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
    let settings = StoreOptions { audit: 100, ..settings() };
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

/// The delivery waits for this. An operation without an event need not wake it.
#[tokio::test]
async fn only_an_operation_with_an_event_wakes_the_delivery() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let is_woken = || {
        let outbox = store.outbox();
        let mut written = std::pin::pin!(outbox.written.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::future::Future::poll(written.as_mut(), &mut context).is_ready()
    };
    let family = issued(&store, "alice", LOGIN).await;
    assert!(is_woken());
    store.confirm(vec![(family.id, 1)]).await.expect("writes");
    assert!(!is_woken());
    issued(&store, "bob", LOGIN).await;
    assert!(is_woken());
}

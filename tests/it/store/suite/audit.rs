//! The outbox of audit events.

use bearward::store::{RevokedBy, Store};
use bearward::tokens::audit_event::{Event, Recorded};
use bearward::tokens::family::revocation::Revoked;
use serde_json::Value;

use crate::support::given::*;

async fn undelivered(store: &dyn Store) -> Vec<Recorded> {
    store.undelivered(100).await.expect("the store works")
}

/// Returns the sequence number and name of each event.
fn names(events: &[Recorded]) -> Vec<(u64, String)> {
    let name = |event: &Recorded| {
        let line: Value = serde_json::from_str(&event.line()).expect("JSON");
        assert_eq!(line["seq"], event.sequence);
        (event.sequence, line["event"].as_str().expect("text").to_owned())
    };
    events.iter().map(name).collect()
}

async fn record(store: &dyn Store, name: &'static str) {
    store.record(Event::new(name), LOGIN.into()).await.expect("the store works");
}

pub(crate) async fn each_decision_is_recorded_once_and_in_order(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    rotated(store, &family, 1, LOGIN).await;
    refresh(store, &family, 1, LOGIN).await;
    record(store, "of.others").await;
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("the store works");
    // Neither is a decision, so neither is recorded.
    store.confirm(vec![(family.id, 2)]).await.expect("the store works");
    store.check().await.expect("the store works");
    let expected =
        ["token.issued", "token.refreshed", "refresh.replayed", "of.others", "token.revoked", "everything.revoked"];
    let expected: Vec<_> = (1..).zip(expected.map(str::to_owned)).collect();
    assert_eq!(names(&undelivered(store).await), expected);
    assert_eq!(names(&store.undelivered(2).await.expect("the store works")), expected[..2]);
}

pub(crate) async fn delivered_events_are_removed_and_the_sequence_goes_on(store: &dyn Store) {
    for name in ["a", "b", "c"] {
        record(store, name).await;
    }
    store.delivered(vec![3, 1]).await.expect("the store works");
    assert_eq!(names(&undelivered(store).await), [(2, "b".to_owned())], "an event between them was not delivered");
    store.delivered(vec![1, 2, 99]).await.expect("the store works");
    assert_eq!(undelivered(store).await, []);
    record(store, "d").await;
    assert_eq!(names(&undelivered(store).await), [(4, "d".to_owned())]);
}

pub(crate) async fn a_failed_operation_is_not_recorded(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    assert!(store.issue(family, ANY, LOGIN.into()).await.is_err(), "an id is taken once");
    record(store, "next").await;
    assert_eq!(names(&undelivered(store).await), [(1, "token.issued".to_owned()), (2, "next".to_owned())]);
}

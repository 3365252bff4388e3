//! The outbox of audit events.

use bearward::store::{IssuedOnce, RevokedBy, Store};
use bearward::tokens::audit_event::{Event, EventContext, Recorded};
use bearward::tokens::authorization::grant::GrantedFamily;
use bearward::tokens::family::Family;
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

async fn granted(store: &dyn Store, family: &Family, most_live: usize) -> IssuedOnce {
    let grant = GrantedFamily { family: family.clone(), redirect_host: "client.example".into(), max_live: ANY };
    store.issue_once(grant, most_live, LOGIN.into()).await.expect("the store works")
}

fn of_client(subject: &str, client_id: &str) -> Family {
    let audience = vec!["https://api.example/mcp".to_owned()];
    Family { client_id: client_id.into(), scope: "a b".into(), audience, ..login(subject, LOGIN) }
}

pub(crate) async fn the_session_of_a_client_is_recorded_once_and_its_first_one_for_a_user(store: &dyn Store) {
    let first = of_client("alice", "notes");
    assert!(matches!(granted(store, &first, ANY).await, IssuedOnce::Written(_)));
    assert!(matches!(granted(store, &first, ANY).await, IssuedOnce::Taken(_)), "nothing is recorded");
    let by_client = EventContext::from(LOGIN).by_client();
    let owner = RevokedBy::Owner("alice".into());
    store.revoke_family(first.id, owner, by_client).await.expect("the store works");
    // The second one of alice with this client, and the first with another one; the oldest live one ends.
    for (subject, client_id, most_live) in
        [("alice", "notes", ANY), ("bob", "notes", ANY), ("alice", "other", 1), ("alice", "other", ANY)]
    {
        granted(store, &of_client(subject, client_id), most_live).await;
    }
    let reused = of_client("carol", "notes");
    granted(store, &reused, ANY).await;
    store.revoke_family(reused.id, RevokedBy::Reuse, LOGIN.into()).await.expect("the store works");
    let recorded = undelivered(store).await;
    let lines: Vec<Value> = recorded.iter().map(|event| serde_json::from_str(&event.line()).expect("JSON")).collect();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let told: Vec<String> = lines
        .iter()
        .map(|line| ["event", "subject", "client_id", "reason", "by"].map(|name| text(line, name)).join(" "))
        .collect();
    let expected = [
        "authorization.granted alice notes - -",
        "client.seen alice notes - -",
        "token.revoked alice notes logout client",
        "authorization.granted alice notes - -",
        "authorization.granted bob notes - -",
        "client.seen bob notes - -",
        "authorization.granted alice other - -",
        "client.seen alice other - -",
        "token.revoked alice notes limit gateway",
        "authorization.granted alice other - -",
        "authorization.granted carol notes - -",
        "client.seen carol notes - -",
        "code.reused carol notes - -",
    ];
    assert_eq!(told, expected.map(str::to_owned).to_vec());
    for line in &lines {
        assert_eq!((text(line, "scope"), &line["resource"][0]), ("a b".to_owned(), &"https://api.example/mcp".into()));
        let goes_to = ["authorization.granted", "client.seen"].contains(&&*text(line, "event"));
        assert_eq!(line["redirect_host"] == "client.example", goes_to, "{line}");
        assert!(line["token_id"].is_string(), "{line}");
    }
}

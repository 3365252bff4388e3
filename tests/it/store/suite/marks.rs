//! Marks of things that can be used once.

use std::time::Duration;

use bearward::store::{Mark, MarkKind, Marked, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::types::clock::UnixTime;

use crate::support::given::*;

const ISSUER: &str = "https://login.example";
const MILLISECOND: Duration = Duration::from_millis(1);
const UNTIL: UnixTime = UnixTime::from_millis(1_700_000_600_500);

fn mark(key: &str) -> Mark {
    Mark { kind: MarkKind::LogoutToken, issuer: ISSUER.into(), key: key.into(), value: [7; 32], until: UNTIL }
}

fn session(session: &str) -> Revoked {
    Revoked::Session { issuer: ISSUER.into(), session: session.into() }
}

async fn used(store: &dyn Store, mark: Mark, revoke: Vec<Revoked>) -> Marked {
    store.mark(mark, revoke, LOGIN.into()).await.expect("the store works")
}

async fn log(store: &dyn Store) -> Vec<Revoked> {
    let log = store.revocations_since(0).await.expect("the store works");
    log.into_iter().map(|entry| entry.what).collect()
}

pub(crate) async fn a_mark_is_used_once(store: &dyn Store) {
    let long = "é\0".repeat(4_000);
    let marked = async |mark: Mark| store.marked(mark).await.expect("the store works");
    for key in ["1", "", long.as_str()] {
        assert_eq!(marked(mark(key)).await, Marked::First, "to look is not to use");
        assert_eq!(used(store, mark(key), vec![]).await, Marked::First);
        assert_eq!(used(store, mark(key), vec![]).await, Marked::Repeated);
        assert_eq!(used(store, Mark { value: [8; 32], ..mark(key) }, vec![]).await, Marked::Taken);
        assert_eq!(used(store, mark(key), vec![]).await, Marked::Repeated, "the first value stays");
        assert_eq!(marked(mark(key)).await, Marked::Repeated);
        assert_eq!(marked(Mark { value: [8; 32], ..mark(key) }).await, Marked::Taken);
    }
    let others = [
        mark("2"),
        Mark { issuer: "https://other.example".into(), ..mark("1") },
        Mark { kind: MarkKind::SecurityEvent, ..mark("1") },
        Mark { kind: MarkKind::SignIn, ..mark("1") },
    ];
    for other in others {
        assert_eq!(used(store, other, vec![]).await, Marked::First);
    }
}

pub(crate) async fn only_the_first_use_revokes(store: &dyn Store) {
    let origin =
        FamilyOrigin { issuer: ISSUER.into(), subject: "alice".into(), session: Some("s".into()), dated: LOGIN };
    let family = Family { origin: Some(origin), ..login("alice", LOGIN) };
    store.issue(family.clone(), ANY, LOGIN.into()).await.expect("the store works");
    let subject = Revoked::Subject { issuer: ISSUER.into(), subject: "bob".into(), not_after: LOGIN };
    let revoke = vec![session("s"), subject.clone()];
    assert_eq!(used(store, mark("1"), revoke.clone()).await, Marked::First);
    let written = [session("s"), Revoked::Family(family.id), subject];
    assert_eq!(log(store).await, written);
    assert!(stored(store, &family).await.revoked.is_some());

    assert_eq!(used(store, mark("1"), revoke.clone()).await, Marked::Repeated);
    assert_eq!(used(store, Mark { value: [8; 32], ..mark("1") }, revoke).await, Marked::Taken);
    assert_eq!(log(store).await, written);
}

pub(crate) async fn a_mark_that_cannot_revoke_is_not_used(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let revoke = vec![session("s"), Revoked::Family(family.id)];
    assert!(store.mark(mark("1"), revoke, LOGIN.into()).await.is_err(), "a family needs an actor");
    assert_eq!(log(store).await, []);
    assert_eq!(stored(store, &family).await.revoked, None);
    assert_eq!(used(store, mark("1"), vec![]).await, Marked::First);
}

pub(crate) async fn one_of_many_uses_at_once_is_the_first(store: &dyn Store) {
    for round in 0..5 {
        let key = round.to_string();
        let uses: Vec<_> = (0..16).map(|_| store.mark(mark(&key), vec![session(&key)], LOGIN.into())).collect();
        let mut first = 0;
        for used in uses {
            match used.await.expect("the store works") {
                Marked::First => first += 1,
                Marked::Repeated => {}
                Marked::Taken => panic!("the value is the same"),
            }
        }
        assert_eq!((first, log(store).await.len()), (1, round + 1));
    }
}

pub(crate) async fn a_mark_is_swept_when_it_has_expired(store: &dyn Store) {
    for key in ["1", "2", "3"] {
        used(store, mark(key), vec![]).await;
    }
    used(store, Mark { until: UNTIL + MILLISECOND, ..mark("4") }, vec![]).await;
    assert_eq!(store.sweep(UNTIL, 10).await.expect("the store works"), 0);
    assert_eq!(used(store, mark("1"), vec![]).await, Marked::Repeated, "kept to its last moment");
    let mut swept = Vec::new();
    for _ in 0..3 {
        swept.push(store.sweep(UNTIL + MILLISECOND, 2).await.expect("the store works"));
    }
    assert_eq!(swept, [2, 1, 0]);
    assert_eq!(used(store, mark("1"), vec![]).await, Marked::First);
    assert_eq!(used(store, mark("4"), vec![]).await, Marked::Repeated);
}

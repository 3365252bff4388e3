//! Grants of which a spent refresh token comes back from the address of the last refresh.

use std::net::IpAddr;
use std::time::Duration;

use bearward::store::{DecideRotation, EndingSearch, IssuedOnce, RevokedBy, Store, shown_reason};
use bearward::tokens::authorization::grant::GrantedFamily;
use bearward::tokens::family::refresh_token::PresentedToken;
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::tokens::family::{Family, Grant, ReuseRule, RevokeReason, Superseded};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;
use tokio::task::JoinSet;

use crate::support::given::*;

const RULE: ReuseRule = ReuseRule::SameAddress(Duration::from_hours(1));

fn home() -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, 7]))
}

/// A grant as the token endpoint writes it.
fn grant(subject: &str) -> Family {
    Family { grant: Some(Grant::default()), address: home(), ..login(subject, LOGIN) }
}

/// With where its code went.
fn granted(family: &Family) -> GrantedFamily {
    GrantedFamily { family: family.clone(), redirect_host: "client.example".into(), max_live: ANY }
}

/// In generation 3, which is in use.
async fn used(store: &dyn Store, family: Family) -> Family {
    let issued = store.issue_once(granted(&family), ANY, LOGIN.into()).await.expect("the store works");
    assert_eq!(issued, IssuedOnce::Written(family.clone()));
    rotated(store, &family, 1, LOGIN).await;
    rotated(store, &family, 2, LOGIN).await;
    store.confirm(vec![(family.id, 3)]).await.expect("the store works");
    stored(store, &family).await
}

/// The decision of the token endpoint at `now`.
fn by_rule(sender: Option<IpAddr>, now: UnixTime) -> DecideRotation {
    Box::new(move |family: Option<&Family>, watermark, presented: &PresentedToken, _| {
        let rotation = rotate(family, watermark, presented, &roots(), &LIFETIMES, now.into());
        match family {
            Some(family) => rotation.for_unproven_sender(family, sender, RULE, now.into()),
            None => rotation,
        }
    })
}

/// Presents the first token, which is spent.
async fn late(store: &dyn Store, family: &Family, now: UnixTime) -> Rotation {
    store.rotate(token(family, 1), by_rule(home(), now), now.into()).await.expect("the store works")
}

fn superseded(family: &Family, at: UnixTime, count: u32) -> Family {
    Family { grant: Some(Grant { superseded: Some(Superseded { at, count }) }), ..family.clone() }
}

pub(crate) async fn a_late_refresh_is_counted_and_committed(store: &dyn Store) {
    let family = used(store, grant("alice")).await;
    let first = LOGIN + AFTER_GRACE;
    for (count, now) in [(1, first), (2, first + Duration::from_mins(1))] {
        let expected = superseded(&family, first, count);
        assert_eq!(late(store, &family, now).await, Rotation::Superseded(expected.clone()));
        assert_eq!(stored(store, &family).await, expected);
    }
    // The next generation keeps the count.
    let next = rotated(store, &family, 3, first).await;
    assert_eq!(next.grant, superseded(&family, first, 2).grant);
    assert_eq!(stored(store, &family).await, next);
    let names = store.undelivered(100).await.expect("the store works");
    let names: Vec<_> = names.iter().map(|event| event.line()).filter(|line| line.contains("refresh.s")).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

pub(crate) async fn late_refreshes_at_once_are_counted_each(store: &dyn Store) {
    let family = used(store, grant("alice")).await;
    let now = LOGIN + AFTER_GRACE;
    let present = |_| store.rotate(token(&family, 1), by_rule(home(), now), now.into());
    let mut calls: JoinSet<_> = (0..13).map(present).collect();
    let mut counts = Vec::new();
    let mut reused = 0;
    let mut revoked = 0;
    while let Some(answer) = calls.join_next().await {
        match answer.expect("no panic").expect("the store works") {
            Rotation::Superseded(family) => {
                counts.push(family.grant.and_then(|grant| grant.superseded).expect("marked").count);
            }
            Rotation::Reused(_) => reused += 1,
            Rotation::Rejected(Reason::GrantRevoked) => revoked += 1,
            other => panic!("{other:?}"),
        }
    }
    counts.sort_unstable();
    assert_eq!((counts, reused, revoked), ((1..=10).collect(), 1, 2));
}

pub(crate) async fn a_spent_token_from_elsewhere_ends_a_superseded_grant(store: &dyn Store) {
    let family = used(store, grant("alice")).await;
    let now = LOGIN + AFTER_GRACE;
    late(store, &family, now).await;
    for (subject, sender) in [("bob", None), ("carol", Some(IpAddr::from([192, 0, 2, 8])))] {
        let family = used(store, grant(subject)).await;
        late(store, &family, now).await;
        let rotation = store.rotate(token(&family, 1), by_rule(sender, now), now.into()).await.expect("it works");
        assert!(matches!(rotation, Rotation::Reused(_)), "{sender:?} {rotation:?}");
        assert_eq!(stored(store, &family).await.revoked.map(|revoked| revoked.reason), Some(RevokeReason::Reuse));
    }
    assert_eq!(stored(store, &family).await.revoked, None);
}

pub(crate) async fn a_new_grant_ends_what_it_supersedes(store: &dyn Store) {
    let now = LOGIN + AFTER_GRACE;
    let other_client = Family { client_id: "other".into(), ..grant("alice") };
    let other_resource = Family { audience: vec!["https://other.example".into()], ..grant("alice") };
    let ended_before = grant("alice");
    // The last one is another device of alice, without a late refresh.
    let families = [grant("alice"), grant("alice"), other_client, other_resource, grant("bob"), grant("alice")];
    for family in [&ended_before].into_iter().chain(&families) {
        used(store, family.clone()).await;
    }
    for family in [&ended_before].into_iter().chain(&families[..5]) {
        assert!(matches!(late(store, family, now).await, Rotation::Superseded(_)));
    }
    let ids: Vec<_> = families.iter().map(|family| family.id).collect();
    let owner = RevokedBy::Owner("alice".into());
    store.revoke_family(ended_before.id, owner, now.into()).await.expect("the store works");
    let before = store.revocations_since(0).await.expect("the store works").len();

    let new = grant("alice");
    let issued = store.issue_once(granted(&new), ANY, now.into()).await.expect("the store works");
    assert_eq!(issued, IssuedOnce::Written(new.clone()));
    let log = store.revocations_since(0).await.expect("the store works");
    let mut ended: Vec<_> = log[before..].iter().map(|entry| entry.what.clone()).collect();
    let mut expected: Vec<_> = ids[..2].iter().map(|id| Revoked::Family(*id)).collect();
    ended.sort_by_key(|what| format!("{what:?}"));
    expected.sort_by_key(|what| format!("{what:?}"));
    assert_eq!(ended, expected);
    for id in &ids[..2] {
        let family = store.family(*id).await.expect("the store works").expect("it is there");
        assert_eq!(family.revoked.map(|revoked| revoked.reason), Some(RevokeReason::Reuse));
    }
    for id in &ids[2..] {
        assert_eq!(store.family(*id).await.expect("the store works").expect("it is there").revoked, None);
    }
    assert_shown_as_superseded(store, &new).await;
}

/// In the list and in the audit log, with the new grant.
async fn assert_shown_as_superseded(store: &dyn Store, new: &Family) {
    for (is_renamed, expected) in [(Some(true), 2), (Some(false), 0), (None, 2)] {
        let search = EndingSearch { reason: Some(RevokeReason::Reuse), is_renamed, before: None, limit: 10 };
        let found = store.endings(search).await.expect("the store works").endings;
        let shown = found.iter().filter(|(ending, _)| shown_reason(ending.reason, ending.by.as_ref()) == "superseded");
        assert_eq!((found.len(), shown.count()), (expected, expected), "{is_renamed:?}");
    }
    let events = store.undelivered(1_000).await.expect("the store works");
    let by_grant = format!("\"grant\":\"{}\"", new.id);
    let ended = events.iter().map(|event| event.line()).filter(|line| line.contains("\"superseded\""));
    let ended: Vec<_> = ended.collect();
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.iter().all(|line| line.contains(&by_grant)), "{ended:?}");
}

pub(crate) async fn superseded_grants_do_not_count_for_the_limit(store: &dyn Store) {
    let now = LOGIN + AFTER_GRACE;
    let superseded = used(store, grant("alice")).await;
    late(store, &superseded, now).await;
    let living = issued(store, "alice", LOGIN).await;
    store.issue_once(granted(&grant("alice")), 2, now.into()).await.expect("the store works");
    assert_eq!(stored(store, &living).await.revoked, None);
    assert!(stored(store, &superseded).await.revoked.is_some());
}

/// A program that signs in each time that it starts ends no session but its own.
pub(crate) async fn a_client_has_a_limit_of_its_own(store: &dyn Store) {
    let login = Family { client_id: String::new(), ..login("alice", LOGIN) };
    store.issue(login.clone(), ANY, LOGIN.into()).await.expect("the store works");
    let mut of_client = Vec::new();
    for number in 1..=4 {
        let at = LOGIN + Duration::from_secs(number);
        let family = Family { created_at: at, last_used_at: at, ..grant("alice") };
        let granted = GrantedFamily { max_live: 2, ..granted(&family) };
        let issued = store.issue_once(granted, 4, at.into()).await.expect("the store works");
        assert_eq!(issued, IssuedOnce::Written(family.clone()));
        of_client.push(family);
    }
    let other = Family { client_id: "other".into(), created_at: LOGIN + Duration::from_secs(5), ..grant("alice") };
    let granted = GrantedFamily { max_live: 2, ..granted(&other) };
    store.issue_once(granted, 4, (LOGIN + Duration::from_secs(5)).into()).await.expect("the store works");
    for (family, is_live) in of_client.iter().zip([false, false, true, true]).chain([(&login, true), (&other, true)]) {
        let revoked = stored(store, family).await.revoked;
        assert_eq!(revoked.is_none(), is_live, "{revoked:?}");
        assert!(revoked.is_none_or(|revoked| revoked.reason == RevokeReason::Limit));
    }
}

/// A user who is locked out grants nothing, and ends nothing.
pub(crate) async fn a_void_grant_ends_nothing(store: &dyn Store) {
    let now = LOGIN + AFTER_GRACE;
    let old = Family { created_at: LOGIN + Duration::from_secs(1), ..grant("alice") };
    let old = used(store, old).await;
    late(store, &old, now).await;
    let watermark = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: LOGIN };
    store.revoke(watermark, now.into()).await.expect("the store works");
    let issued = store.issue_once(granted(&grant("alice")), ANY, now.into()).await.expect("the store works");
    assert_eq!(issued, IssuedOnce::Void);
    assert_eq!(stored(store, &old).await.revoked, None);
}

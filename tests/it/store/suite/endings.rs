//! The list of what was ended, why and by which actor.

use std::time::Duration;

use bearward::store::{Ending, EndingSearch, RevokedBy, Revoker, Store, shown_reason};
use bearward::tokens::audit_event::EventContext;
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin, RevokeReason};
use bearward::types::clock::UnixTime;

use crate::support::given::*;

/// All pages of the list.
async fn pages(store: &dyn Store, reason: Option<RevokeReason>, limit: usize) -> Vec<Vec<Ending>> {
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let found =
            store.endings(EndingSearch { reason, is_renamed: None, before, limit }).await.expect("the store works");
        assert!(found.endings.len() <= limit && pages.len() < 100);
        for (ending, family) in &found.endings {
            assert_eq!(family.as_ref().map(|family| Revoked::Family(family.id)).is_some(), is_session(ending));
        }
        pages.push(found.endings.into_iter().map(|(ending, _)| ending).collect());
        match found.next {
            Some(next) => before = Some(next),
            None => return pages,
        }
    }
}

fn is_session(ending: &Ending) -> bool {
    matches!(ending.what, Revoked::Family(_))
}

async fn all(store: &dyn Store, reason: Option<RevokeReason>) -> Vec<Ending> {
    pages(store, reason, 500).await.concat()
}

fn by_operator(at: UnixTime) -> EventContext {
    EventContext { operator: Some("da\0na".into()), ..at.into() }
}

pub(crate) async fn what_was_ended_is_listed_newest_first(store: &dyn Store) {
    let second = |number: u64| LOGIN + Duration::from_secs(number);
    let mut families = Vec::new();
    for number in 0..5 {
        families.push(issued(store, &format!("user{number}"), LOGIN).await);
    }
    let owner = RevokedBy::Owner("user0".into());
    let own = EventContext { caller: Some("user0".into()), ..second(1).into() };
    store.revoke_family(families[0].id, owner, own).await.expect("the store works");
    store.revoke_family(families[1].id, RevokedBy::Admin, by_operator(second(2))).await.expect("the store works");
    // A repeated call ends nothing.
    store.revoke_family(families[1].id, RevokedBy::Admin, by_operator(second(3))).await.expect("the store works");
    let caller = EventContext { caller: Some("support".into()), ..second(3).into() };
    store.revoke_family(families[2].id, RevokedBy::Admin, caller).await.expect("the store works");
    rotated(store, &families[3], 1, LOGIN).await;
    rotated(store, &families[3], 2, LOGIN).await;
    refresh(store, &families[3], 1, second(60)).await;
    store.issue(login("user4", second(61)), 1, second(61).into()).await.expect("the store works");
    let issuer = || ISSUER.to_owned();
    let named = [
        Revoked::Token { issuer: issuer(), jti: "j\0".into() },
        Revoked::Session { issuer: "https://login.example".into(), session: "s\0".into() },
        Revoked::Subject { issuer: issuer(), subject: "user1".into(), not_after: second(30) },
        Revoked::Issuer { issuer: "https://login.example".into(), not_after: second(31) },
        Revoked::Everything { not_after: second(32) },
    ];
    for (number, what) in named.iter().enumerate() {
        let at = second(62 + number as u64);
        store.revoke(what.clone(), by_operator(at)).await.expect("the store works");
    }

    let dana = || Some(Revoker::Operator("da\0na".into()));
    let family = |number: usize| Revoked::Family(families[number].id);
    let expected = [
        (named[4].clone(), second(66), RevokeReason::Admin, dana()),
        (named[3].clone(), second(65), RevokeReason::Admin, dana()),
        (named[2].clone(), second(64), RevokeReason::Admin, dana()),
        (named[1].clone(), second(63), RevokeReason::Admin, dana()),
        (named[0].clone(), second(62), RevokeReason::Admin, dana()),
        (family(4), second(61), RevokeReason::Limit, None),
        (family(3), second(60), RevokeReason::Reuse, None),
        (family(2), second(3), RevokeReason::Admin, Some(Revoker::Caller("support".into()))),
        (family(1), second(2), RevokeReason::Admin, dana()),
        (family(0), second(1), RevokeReason::Logout, None),
    ];
    let listed = all(store, None).await.into_iter().map(|ending| (ending.what, ending.at, ending.reason, ending.by));
    assert_eq!(listed.collect::<Vec<_>>(), expected);
    let revokers = store.revokers(families.iter().map(|family| family.id).collect()).await.expect("the store works");
    let mut by: Vec<_> = revokers.into_iter().collect();
    by.sort_by_key(|(id, _)| *id != families[1].id);
    let caller = Revoker::Caller("support".into());
    assert_eq!(by, [(families[1].id, dana().expect("one")), (families[2].id, caller)]);
}

pub(crate) async fn a_list_of_endings_has_pages(store: &dyn Store) {
    for number in 0..9 {
        let family = issued(store, "alice", LOGIN).await;
        let by = if number % 3 == 0 { RevokedBy::Admin } else { RevokedBy::Owner("alice".into()) };
        store.revoke_family(family.id, by, LOGIN.into()).await.expect("the store works");
    }
    let listed = all(store, None).await;
    assert_eq!(listed.iter().map(|ending| ending.sequence).collect::<Vec<_>>(), (1..=9).rev().collect::<Vec<_>>());
    for limit in [1, 2, 3, 9] {
        let pages = pages(store, None, limit).await;
        assert_eq!((pages.len(), pages.concat()), (9_usize.div_ceil(limit), listed.clone()), "{limit} in a page");
    }
    let by_admin = pages(store, Some(RevokeReason::Admin), 2).await;
    assert_eq!(by_admin.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(all(store, Some(RevokeReason::Logout)).await.len(), 6);
    assert_eq!(all(store, Some(RevokeReason::Reuse)).await, []);
}

pub(crate) async fn what_a_provider_ended_can_be_found(store: &dyn Store) {
    let origin = |session: &str| FamilyOrigin {
        issuer: "https://login.example".into(),
        subject: "alice".into(),
        session: Some(session.into()),
        dated: LOGIN,
    };
    for number in 0..2 {
        let family = Family { origin: Some(origin("s1")), ..login(&format!("user{number}"), LOGIN) };
        store.issue(family, ANY, LOGIN.into()).await.expect("the store works");
    }
    let others = issued(store, "bob", LOGIN).await;
    store.revoke_family(others.id, RevokedBy::Admin, by_operator(LOGIN)).await.expect("the store works");
    let of_session = Revoked::Session { issuer: "https://login.example".into(), session: "s1".into() };
    let by_corp = EventContext::from(LOGIN).by_provider(&"corp".into());
    store.revoke(of_session, by_corp).await.expect("the store works");
    let found = async |is_renamed| {
        let search = EndingSearch { reason: Some(RevokeReason::Admin), is_renamed, before: None, limit: 10 };
        store.endings(search).await.expect("the store works").endings
    };
    let reported = found(Some(true)).await;
    assert_eq!(reported.len(), 3, "the session there, and two here");
    for (ending, _) in reported {
        assert_eq!(ending.by, Some(Revoker::Provider("corp".into())));
        assert_eq!(shown_reason(ending.reason, ending.by.as_ref()), "provider");
    }
    assert_eq!((found(Some(false)).await.len(), found(None).await.len()), (1, 4));
}

pub(crate) async fn the_list_outlives_the_log(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    store.revoke_family(family.id, RevokedBy::Admin, by_operator(LOGIN)).await.expect("the store works");
    store.sweep(LOGIN + LONGEST_LIFE + Duration::from_millis(1), 100).await.expect("the store works");
    assert_eq!(store.revocations_since(0).await.expect("the store works"), []);
    assert_eq!(all(store, None).await.len(), 1);
    store.sweep(LOGIN + LONGEST_FAMILY, 100).await.expect("the store works");
    assert_eq!(all(store, None).await.len(), 1);
    store.sweep(LOGIN + LONGEST_FAMILY + Duration::from_millis(1), 100).await.expect("the store works");
    assert_eq!(all(store, None).await, []);
}

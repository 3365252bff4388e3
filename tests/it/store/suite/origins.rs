//! Sessions that began at another issuer, and the revocations there that end them.

use std::time::Duration;

use bearward::store::{EndingSearch, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin, RevokeReason};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;

use crate::support::given::*;

const MILLISECOND: Duration = Duration::from_millis(1);
/// The clock of the other issuers is an hour behind.
const DATED: UnixTime = UnixTime::from_millis(1_700_000_000_500 - 3_600_000);
const A: &str = "https://a.example";
const B: &str = "https://b.example";

fn from(issuer: &str, subject: &str, session: Option<&str>, dated: UnixTime) -> Family {
    let origin =
        FamilyOrigin { issuer: issuer.into(), subject: subject.into(), session: session.map(Into::into), dated };
    Family { origin: Some(origin), ..login(&format!("a|{subject}"), LOGIN) }
}

async fn begun(store: &dyn Store, family: Family) -> Family {
    store.issue(family, ANY, LOGIN.into()).await.expect("the store works").expect("not void")
}

async fn revoke(store: &dyn Store, what: Revoked) {
    store.revoke(what, LOGIN.into()).await.expect("the store works");
}

fn session(issuer: &str, session: &str) -> Revoked {
    Revoked::Session { issuer: issuer.into(), session: session.into() }
}

fn subject(issuer: &str, subject: &str, not_after: UnixTime) -> Revoked {
    Revoked::Subject { issuer: issuer.into(), subject: subject.into(), not_after }
}

fn issuer(issuer: &str, not_after: UnixTime) -> Revoked {
    Revoked::Issuer { issuer: issuer.into(), not_after }
}

/// Which of the families were ended. The others are refreshed.
async fn ended(store: &dyn Store, families: &[Family]) -> Vec<bool> {
    let mut ended = Vec::new();
    for family in families {
        let found = stored(store, family).await;
        assert_eq!(found.origin, family.origin);
        match found.revoked {
            Some(revoked) => {
                assert_eq!((revoked.at, revoked.reason), (LOGIN, RevokeReason::Admin));
                assert_eq!(rejection(store, family, found.generation, LOGIN).await, Reason::GrantRevoked);
            }
            None => drop(rotated(store, family, found.generation, LOGIN).await),
        }
        ended.push(found.revoked.is_some());
    }
    ended
}

async fn log(store: &dyn Store) -> Vec<Revoked> {
    let log = store.revocations_since(0).await.expect("the store works");
    log.into_iter().map(|entry| entry.what).collect()
}

pub(crate) async fn a_revoked_session_ends_exactly_its_families(store: &dyn Store) {
    let families = [
        begun(store, from(A, "alice", Some("s\0x"), DATED)).await,
        begun(store, from(A, "alice", Some("s\0x"), DATED + Duration::from_hours(9))).await,
        begun(store, from(A, "alice", Some("s2"), DATED)).await,
        begun(store, from(A, "alice", None, DATED)).await,
        begun(store, from(B, "alice", Some("s\0x"), DATED)).await,
        issued(store, "s\0x", LOGIN).await,
    ];
    revoke(store, session(A, "s\0x")).await;
    assert_eq!(ended(store, &families).await, [true, true, false, false, false, false]);
    let log_of_first = log(store).await;
    assert_eq!(log_of_first[0], session(A, "s\0x"));
    let of_families = [Revoked::Family(families[0].id), Revoked::Family(families[1].id)];
    assert!(log_of_first.len() == 3 && of_families.iter().all(|each| log_of_first.contains(each)), "{log_of_first:?}");

    revoke(store, session(A, "s\0x")).await;
    assert_eq!(log(store).await.len(), 4, "nothing is ended twice");
    revoke(store, session(B, "s\0x")).await;
    assert_eq!(ended(store, &families).await, [true, true, false, false, true, false]);

    let found = store
        .endings(EndingSearch { reason: None, is_renamed: None, before: None, limit: 9 })
        .await
        .expect("the store works");
    let listed: Vec<_> = found.endings.iter().rev().map(|(ending, _)| ending.what.clone()).collect();
    assert_eq!(listed, log(store).await);
    let families_listed = found.endings.iter().filter(|(_, family)| family.is_some()).count();
    assert_eq!(families_listed, 3, "with the sessions that were ended");
}

pub(crate) async fn a_watermark_elsewhere_ends_what_is_dated_before_it(store: &dyn Store) {
    let families = [
        begun(store, from(A, "alice", None, DATED - MILLISECOND)).await,
        begun(store, from(A, "alice", Some("s"), DATED)).await,
        begun(store, from(A, "alice", None, DATED + MILLISECOND)).await,
        begun(store, from(A, "bob", None, DATED)).await,
        begun(store, from(A, "bob", None, DATED + MILLISECOND)).await,
        begun(store, from(B, "alice", None, DATED)).await,
        issued(store, "alice", LOGIN).await,
    ];
    revoke(store, subject(A, "alice", DATED)).await;
    assert_eq!(ended(store, &families).await, [true, true, false, false, false, false, false]);
    revoke(store, issuer(A, DATED)).await;
    assert_eq!(ended(store, &families).await, [true, true, false, true, false, false, false]);
    revoke(store, issuer(B, DATED - MILLISECOND)).await;
    assert_eq!(ended(store, &families).await, [true, true, false, true, false, false, false]);
    // By the clock of that issuer, also if it is ahead of ours.
    revoke(store, issuer(A, LOGIN + Duration::from_hours(1))).await;
    assert_eq!(ended(store, &families).await, [true, true, true, true, true, false, false]);
}

pub(crate) async fn a_login_is_void_if_its_session_was_revoked_before(store: &dyn Store) {
    for what in [session(A, "s"), subject(A, "alice", DATED), issuer(B, DATED), session(B, "alice")] {
        revoke(store, what).await;
    }
    let logged = log(store).await.len();
    for (family, is_void) in [
        (from(A, "alice", None, DATED), true),
        (from(A, "alice", None, DATED + MILLISECOND), false),
        (from(A, "bob", Some("s"), DATED + Duration::from_hours(1)), true),
        (from(A, "bob", Some("s2"), DATED), false),
        (from(A, "bob", Some("alice"), DATED), false),
        (from(A, "s", None, DATED), false),
        (from(B, "bob", Some("s"), DATED), true),
        (from(B, "bob", Some("s"), DATED + MILLISECOND), false),
        (from("https://c.example", "alice", Some("s"), DATED), false),
    ] {
        let began = store.issue(family.clone(), ANY, LOGIN.into()).await.expect("the store works");
        assert_eq!(began.is_none(), is_void, "{:?}", family.origin);
        assert_eq!(store.family(family.id).await.expect("the store works").is_none(), is_void);
    }
    assert_eq!(log(store).await.len(), logged);
}

/// A million sessions of an issuer may have expired and wait for the sweep.
pub(crate) async fn a_session_that_expired_long_ago_is_not_ended(store: &dyn Store) {
    let expiring = |idle_expiry| Family { idle_expiry, ..from(A, "alice", Some("s"), DATED) };
    let before = LOGIN - LONGEST_LIFE;
    let (gone, last) = (begun(store, expiring(before - MILLISECOND)).await, begun(store, expiring(before)).await);
    revoke(store, session(A, "s")).await;
    let revoked = [stored(store, &gone).await.revoked, stored(store, &last).await.revoked];
    assert_eq!(revoked.map(|revoked| revoked.is_some()), [false, true], "an access token may live");
}

/// A page has fewer.
pub(crate) async fn a_thousand_families_of_one_session_end_together(store: &dyn Store) {
    let began: Vec<_> =
        (0..1_100).map(|_| store.issue(from(A, "alice", Some("s"), DATED), ANY, LOGIN.into())).collect();
    for began in began {
        began.await.expect("the store works").expect("not void");
    }
    revoke(store, session(A, "s")).await;
    assert_eq!(log(store).await.len(), 1_101);
}

//! Watermarks of clients.

use std::time::Duration;

use bearward::store::{EndingSearch, IssuedOnce, LiveClient, Search, SearchState, Store, Subjects};
use bearward::tokens::authorization::grant::GrantedFamily;
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, RevokeReason};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;

use crate::support::given::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn client(client_id: &str, subject: Option<&str>, not_after: UnixTime) -> Revoked {
    Revoked::Client { client_id: client_id.into(), subject: subject.map(Into::into), not_after }
}

async fn revoke(store: &dyn Store, what: Revoked, now: UnixTime) -> u64 {
    store.revoke(what, now.into()).await.expect("the store works")
}

/// With where its code went.
fn of_code(family: Family) -> GrantedFamily {
    GrantedFamily { family, redirect_host: "client.example".into(), max_live: ANY }
}

fn grant(subject: &str, client_id: &str, now: UnixTime) -> Family {
    Family { client_id: client_id.into(), ..login(subject, now) }
}

async fn granted(store: &dyn Store, subject: &str, client_id: &str, now: UnixTime) -> Family {
    let family = store.issue(grant(subject, client_id, now), ANY, now.into()).await.expect("the store works");
    family.expect("no watermark voids it")
}

pub(crate) async fn a_clients_watermark_ends_its_families(store: &dyn Store) {
    let alice = granted(store, "alice", "spa", LOGIN).await;
    let bob = granted(store, "bob", "spa", LOGIN).await;
    let later = granted(store, "alice", "spa", LOGIN + MILLISECOND).await;
    let of_another = granted(store, "alice", "spa2", LOGIN).await;
    let own = granted(store, "alice", "", LOGIN).await;
    assert_eq!(revoke(store, client("spa", None, LOGIN), LOGIN + SECOND).await, 1, "one entry of the log");
    for family in [&alice, &bob] {
        assert_eq!(rejection(store, family, 1, LOGIN + SECOND).await, Reason::GrantRevoked);
    }
    for family in [&later, &of_another, &own] {
        rotated(store, family, 1, LOGIN + SECOND).await;
    }
    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log.len(), 1);
    let shown = store.families_of("alice".into()).await.expect("the store works");
    let ended: Vec<_> = shown.iter().filter(|family| family.revoked.is_some()).collect();
    assert_eq!(ended.iter().map(|family| family.id).collect::<Vec<_>>(), [alice.id]);
    assert_eq!(ended[0].revoked.map(|revoked| revoked.reason), Some(RevokeReason::Admin));
    assert_eq!(stored(store, &alice).await, *ended[0]);
    for (state, expected) in [(SearchState::Live, vec![]), (SearchState::Ended, vec![bob.id])] {
        let subjects = Subjects::One("bob".into());
        let now = LOGIN + SECOND;
        let search = Search { subjects, state, client_id: None, resource: None, after: None, limit: 9, now };
        let found = store.search(search).await.expect("the store works").families;
        assert_eq!(found.iter().map(|family| family.id).collect::<Vec<_>>(), expected, "{state:?}");
    }
}

pub(crate) async fn a_watermark_can_be_of_a_client_and_a_user(store: &dyn Store) {
    let alice = granted(store, "alice", "spa", LOGIN).await;
    let bob = granted(store, "bob", "spa", LOGIN).await;
    let of_another = granted(store, "alice", "cli", LOGIN).await;
    revoke(store, client("spa", Some("alice"), LOGIN), LOGIN).await;
    assert_eq!(rejection(store, &alice, 1, LOGIN).await, Reason::GrantRevoked);
    rotated(store, &bob, 1, LOGIN).await;
    rotated(store, &of_another, 1, LOGIN).await;
    revoke(store, client("cli", None, LOGIN), LOGIN).await;
    assert_eq!(rejection(store, &of_another, 2, LOGIN).await, Reason::GrantRevoked);
    rotated(store, &bob, 2, LOGIN).await;
}

pub(crate) async fn a_clients_watermark_is_never_lowered(store: &dyn Store) {
    let family = granted(store, "alice", "spa", LOGIN).await;
    for subject in [None, Some("alice")] {
        revoke(store, client("spa", subject, LOGIN), LOGIN).await;
        revoke(store, client("spa", subject, LOGIN - SECOND), LOGIN).await;
        assert_eq!(rejection(store, &family, 1, LOGIN).await, Reason::GrantRevoked, "{subject:?}");
    }
}

/// With every character that a client id can have.
pub(crate) async fn the_log_has_the_client(store: &dyn Store) {
    let url = "https://é.example/a?b='c'\0\u{10FFFF}";
    let written = [client(url, None, LOGIN), client(url, Some("al|ice\0"), LOGIN), client("spa", None, UnixTime::MAX)];
    for what in &written {
        revoke(store, what.clone(), LOGIN).await;
    }
    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log.iter().map(|each| each.what.clone()).collect::<Vec<_>>(), written);
    assert_eq!((log[0].until, log[2].until), (LOGIN + LONGEST_LIFE, UnixTime::MAX));
    let search = EndingSearch { reason: None, is_renamed: None, before: None, limit: 9 };
    let mut listed = store.endings(search).await.expect("the store works").endings;
    listed.reverse();
    assert_eq!(listed.into_iter().map(|(ending, _)| ending.what).collect::<Vec<_>>(), written);
}

/// Its code was made before, and redeemed after.
pub(crate) async fn a_grant_that_is_older_than_the_watermark_is_void(store: &dyn Store) {
    revoke(store, client("spa", None, LOGIN), LOGIN).await;
    revoke(store, client("cli", Some("alice"), LOGIN), LOGIN).await;
    let now = LOGIN + SECOND;
    for (subject, client_id, is_void) in [
        ("alice", "spa", true),
        ("bob", "spa", true),
        ("alice", "cli", true),
        ("bob", "cli", false),
        ("alice", "", false),
    ] {
        let issued = store.issue(grant(subject, client_id, LOGIN), ANY, now.into()).await.expect("the store works");
        assert_eq!(issued.is_none(), is_void, "{subject} {client_id}");
        let once = store
            .issue_once(of_code(grant(subject, client_id, LOGIN)), ANY, now.into())
            .await
            .expect("the store works");
        assert_eq!(matches!(once, IssuedOnce::Void), is_void, "{subject} {client_id}");
        granted(store, subject, client_id, LOGIN + MILLISECOND).await;
    }
}

/// The clock was set back after the grant.
pub(crate) async fn a_clients_watermark_of_now_ends_families_dated_later(store: &dyn Store) {
    let later = granted(store, "alice", "spa", LOGIN + SECOND).await;
    let of_another = granted(store, "alice", "cli", LOGIN + SECOND).await;
    revoke(store, client("spa", None, LOGIN), LOGIN + MILLISECOND).await;
    revoke(store, client("spa", Some("bob"), LOGIN), LOGIN).await;
    rotated(store, &later, 1, LOGIN + SECOND).await;
    revoke(store, client("spa", Some("alice"), LOGIN), LOGIN).await;
    assert_eq!(rejection(store, &later, 2, LOGIN + SECOND).await, Reason::GrantRevoked);
    rotated(store, &of_another, 1, LOGIN + SECOND).await;
    revoke(store, client("cli", None, LOGIN), LOGIN).await;
    assert_eq!(rejection(store, &of_another, 2, LOGIN + SECOND).await, Reason::GrantRevoked);
    let log = store.revocations_since(0).await.expect("the store works");
    let families: Vec<_> = log.iter().filter(|each| matches!(each.what, Revoked::Family(_))).collect();
    assert_eq!(families.len(), 2, "their access tokens are revoked too");
}

pub(crate) async fn a_clients_watermark_outlives_what_it_revokes(store: &dyn Store) {
    let family = granted(store, "alice", "spa", LOGIN).await;
    revoke(store, client("spa", None, LOGIN), LOGIN).await;
    revoke(store, client("cli", None, LOGIN), LOGIN).await;
    let over = LOGIN + LONGEST_LIFE + MILLISECOND;
    assert_eq!(store.expired(over, 100).await.expect("the store works").rows, 3);
    assert_eq!(store.sweep(over, 100).await.expect("the store works"), 3, "two revocations and the watermark of cli");
    assert_eq!(rejection(store, &family, 1, over).await, Reason::GrantRevoked);
    let gone = family.absolute_expiry + LONGEST_LIFE + MILLISECOND;
    let swept = store.sweep(gone, 100).await.expect("the store works");
    assert_eq!(swept, 4, "the family, the watermark of spa, and both entries of the list of what was ended");
}

pub(crate) async fn clients_with_live_sessions_are_counted(store: &dyn Store) {
    for (subject, client_id) in [("alice", "spa"), ("bob", "spa"), ("alice", "cli"), ("alice", ""), ("carol", "é")] {
        granted(store, subject, client_id, LOGIN).await;
    }
    let key = Family { key_hash: Some([1; 32]), ..grant("ci", "cli", LOGIN) };
    store.issue(key, ANY, LOGIN.into()).await.expect("the store works").expect("it is valid");
    let counted = async |now, limit| {
        let clients = store.live_clients(now, limit).await.expect("the store works");
        clients.into_iter().map(|LiveClient { client_id, live }| (client_id, live)).collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, u64)]| pairs.iter().map(|(id, live)| ((*id).to_owned(), *live)).collect::<Vec<_>>();
    assert_eq!(counted(LOGIN, 9).await, pairs(&[("spa", 2), ("cli", 1), ("é", 1)]));
    assert_eq!(counted(LOGIN, 1).await, pairs(&[("spa", 2)]));
    let own = |subject: &str| Revoked::Subject { issuer: ISSUER.into(), subject: subject.into(), not_after: LOGIN };
    revoke(store, own("carol"), LOGIN).await;
    revoke(store, client("spa", Some("bob"), LOGIN), LOGIN).await;
    assert_eq!(counted(LOGIN, 9).await, pairs(&[("cli", 1), ("spa", 1)]));
    revoke(store, client("spa", None, LOGIN), LOGIN).await;
    assert_eq!(counted(LOGIN, 9).await, pairs(&[("cli", 1)]));
    assert_eq!(counted(LOGIN + LIFETIMES.idle, 9).await, []);
    granted(store, "alice", "spa", LOGIN + MILLISECOND).await;
    assert_eq!(counted(LOGIN, 9).await, pairs(&[("cli", 1), ("spa", 1)]));
    revoke(store, Revoked::Everything { not_after: LOGIN }, LOGIN).await;
    assert_eq!(counted(LOGIN, 9).await, [], "a watermark of now ends what is dated later, too");
}

/// A session that the watermark of its client has ended does not count, and that watermark ends no other session.
pub(crate) async fn the_limit_of_sessions_measures_each_one_by_its_own_client(store: &dyn Store) {
    let own = granted(store, "alice", "", LOGIN).await;
    for _ in 0..2 {
        granted(store, "alice", "spa", LOGIN + SECOND).await;
    }
    revoke(store, client("spa", None, LOGIN + 3 * SECOND), LOGIN + 3 * SECOND).await;
    let limited = async |client_id: &str, now: UnixTime| {
        let family = store.issue(grant("alice", client_id, now), 2, now.into()).await.expect("the store works");
        family.expect("no watermark voids it")
    };
    let second = limited("", LOGIN + 5 * SECOND).await;
    assert_eq!(stored(store, &own).await.revoked, None, "the ended sessions of spa count");
    limited("spa", LOGIN + 6 * SECOND).await;
    let ended = stored(store, &own).await.revoked;
    assert_eq!(ended.map(|revoked| revoked.reason), Some(RevokeReason::Limit), "the watermark of spa hides it");
    assert_eq!(stored(store, &second).await.revoked, None);
}

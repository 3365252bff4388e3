//! API keys: families with the hash of a secret.

use std::time::Duration;

use bearward::store::{KeySearch, RevokeOutcome, RevokedBy, Search, SearchState, Store, Subjects};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::rotation::Rotation;
use bearward::tokens::family::{Family, KeyRate};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;

use crate::support::given::*;

const YEAR: Duration = Duration::from_hours(24 * 365);

fn key(subject: &str, now: UnixTime) -> Family {
    Family { key_hash: Some([9; 32]), idle_expiry: now + YEAR, absolute_expiry: now + YEAR, ..login(subject, now) }
}

async fn written(store: &dyn Store, key: Family) -> Family {
    let issued = store.issue(key, 1, LOGIN.into()).await.expect("the store works");
    issued.expect("no watermark voids it")
}

/// All pages of the list, with at most `limit` keys each.
async fn listed(store: &dyn Store, subject: Option<&str>, limit: usize) -> Vec<Family> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let search = KeySearch { subject: subject.map(str::to_owned), after, limit };
        let found = store.api_keys(search).await.expect("the store works");
        assert!(found.families.len() <= limit && all.len() < 1_000);
        all.extend(found.families);
        match found.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

pub(crate) async fn a_key_comes_back_as_it_was_written(store: &dyn Store) {
    for rate in [None, KeyRate::parse("100/min"), KeyRate::parse("1000000/day")] {
        let subject = format!("a\0b{rate:?}");
        let key = written(store, Family { key_hash: Some([255; 32]), key_rate: rate, ..key(&subject, LOGIN) }).await;
        assert_eq!(stored(store, &key).await, key);
        assert_eq!(listed(store, Some(&subject), 10).await, [key]);
    }
}

pub(crate) async fn keys_are_listed_without_logins_page_by_page(store: &dyn Store) {
    let mut keys = Vec::new();
    for (number, subject) in ["bob", "alice", "bob", "carol", "bob"].into_iter().enumerate() {
        // Some keys of one subject have the same time.
        keys.push(written(store, key(subject, LOGIN + Duration::from_secs(number as u64 / 3))).await);
        issued(store, subject, LOGIN).await;
    }
    let newer = |key: &Family| std::cmp::Reverse((key.created_at, key.id.to_string()));
    keys.sort_by(|one, other| (&one.subject, newer(one)).cmp(&(&other.subject, newer(other))));
    let of_bob: Vec<Family> = keys.iter().filter(|key| key.subject == "bob").cloned().collect();
    for limit in [1, 2, 3, 100] {
        assert_eq!(listed(store, None, limit).await, keys, "{limit} in a page");
        assert_eq!(listed(store, Some("bob"), limit).await, of_bob, "{limit} in a page");
    }
    assert_eq!(listed(store, Some("nothing"), 1).await, []);
}

pub(crate) async fn keys_do_not_count_for_the_limit_of_sessions(store: &dyn Store) {
    let session = issued(store, "alice", LOGIN).await;
    let keys = [written(store, key("alice", LOGIN)).await, written(store, key("alice", LOGIN)).await];
    assert_eq!(stored(store, &session).await.revoked, None, "a key ends no session");
    let next = store.issue(login("alice", LOGIN + Duration::from_secs(1)), 1, LOGIN.into()).await;
    assert!(next.expect("the store works").is_some());
    assert!(stored(store, &session).await.revoked.is_some(), "a session does");
    for key in &keys {
        assert_eq!(stored(store, key).await.revoked, None, "no session ends a key");
    }
}

pub(crate) async fn access_tokens_alone_do_not_count_for_the_limit(store: &dyn Store) {
    let session = issued(store, "alice", LOGIN).await;
    let alone = || written(store, Family { generation: 0, ..login("alice", LOGIN) });
    let alone = [alone().await, alone().await];
    assert_eq!(stored(store, &session).await.revoked, None, "an access token ends no session");
    let next = store.issue(login("alice", LOGIN + Duration::from_secs(1)), 1, LOGIN.into()).await;
    assert!(next.expect("the store works").is_some());
    assert!(stored(store, &session).await.revoked.is_some(), "a session does");
    for token in &alone {
        assert_eq!(stored(store, token).await.revoked, None, "no session ends an access token");
    }
}

pub(crate) async fn keys_hide_no_session(store: &dyn Store) {
    let session = issued(store, "alice", LOGIN).await;
    for number in 0..1_000 {
        written(store, key("alice", LOGIN + Duration::from_secs(1 + number))).await;
    }
    let ids = |found: &[Family]| found.iter().map(|family| family.id).collect::<Vec<_>>();
    assert_eq!(ids(&store.families_of("alice".into()).await.expect("the store works")), [session.id]);
    for state in [SearchState::Live, SearchState::All, SearchState::Ended] {
        let subjects = Subjects::One("alice".into());
        let search = Search { subjects, state, client_id: None, resource: None, after: None, limit: 10, now: LOGIN };
        let found = store.search(search).await.expect("the store works").families;
        let expected = if state == SearchState::Ended { vec![] } else { vec![session.id] };
        assert_eq!(ids(&found), expected, "{state:?}");
    }
}

pub(crate) async fn the_last_use_of_a_key_is_only_raised(store: &dyn Store) {
    let (key, session) = (written(store, key("alice", LOGIN)).await, issued(store, "alice", LOGIN).await);
    let later = LOGIN + Duration::from_hours(1);
    for at in [later, LOGIN] {
        store.used(key.id, at).await.expect("the store works");
        store.used(session.id, at).await.expect("the store works");
    }
    assert_eq!(stored(store, &key).await, Family { last_used_at: later, ..key });
    assert_eq!(stored(store, &session).await, session, "only of keys");
}

pub(crate) async fn a_key_is_never_refreshed(store: &dyn Store) {
    let key = written(store, key("alice", LOGIN)).await;
    // With the root secret, which no client has.
    assert!(matches!(refresh(store, &key, 1, LOGIN).await, Rotation::Rejected(Reason::GrantForged)));
    assert_eq!(stored(store, &key).await, key);
}

pub(crate) async fn a_revoked_key_is_in_the_log_and_audited(store: &dyn Store) {
    let keys = [written(store, key("alice", LOGIN)).await, written(store, key("bob", LOGIN)).await];
    let outcome = store.revoke_family(keys[0].id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    assert_eq!(outcome, RevokeOutcome::Revoked);
    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log[0].what, Revoked::Family(keys[0].id));
    let events: Vec<String> =
        store.undelivered(10).await.expect("the store works").iter().map(|event| event.line()).collect();
    for (line, name) in events.iter().zip(["api_key.issued", "api_key.issued", "api_key.revoked"]) {
        assert!(line.contains(&format!("\"event\":\"{name}\"")), "{line}");
    }
    assert_eq!(events.len(), 3);
    let states = listed(store, None, 10).await.into_iter().map(|key| key.revoked.is_some()).collect::<Vec<_>>();
    assert_eq!(states, [true, false]);
}

/// A key lives longer than the sessions of its subject.
pub(crate) async fn a_watermark_voids_keys_for_as_long_as_they_live(store: &dyn Store) {
    let key = written(store, key("alice", LOGIN)).await;
    let what = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: LOGIN };
    store.revoke(what, LOGIN.into()).await.expect("the store works");
    let last_moment = LOGIN + YEAR - Duration::from_millis(1);
    while store.sweep(last_moment, 100).await.expect("the store works") > 0 {}
    assert!(stored(store, &key).await.revoked.is_some());
    assert!(listed(store, None, 10).await[0].revoked.is_some());
}

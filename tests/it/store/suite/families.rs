//! Logins: their limit, who can revoke them, and who can list them.

use std::time::Duration;

use bearward::store::{RevokeOutcome, RevokedBy, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin, Grant, RevokeReason, RevokedAt, Superseded};
use bearward::tokens::signing::StoredKey;
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use serde_json::json;

use crate::support::given::*;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn owner(subject: &str) -> RevokedBy {
    RevokedBy::Owner(subject.into())
}

async fn why_revoked(store: &dyn Store, family: &Family) -> Option<RevokeReason> {
    stored(store, family).await.revoked.map(|revoked| revoked.reason)
}

pub(crate) async fn every_field_comes_back(store: &dyn Store) {
    let claims = json!({"tier": {"level": [1, null, "gold", 1.5]}, "é": "\"\\\u{1F43B}"});
    let family = Family {
        subject: "Ида|'; --".into(),
        scope: String::new(),
        audience: vec![],
        claims: claims.as_object().cloned().expect("is an object"),
        label: "a 📱\nof \"mine\"\0\u{10FFFF}0".into(),
        address: Some("2001:db8::7".parse().expect("an address")),
        salt: [255; 32],
        generation: 9_000_000_000,
        root: 255,
        confirmed: 8_999_999_999,
        idle_expiry: UnixTime::MAX,
        absolute_expiry: UnixTime::MAX,
        origin: Some(FamilyOrigin {
            issuer: "https://login.example/é".into(),
            subject: "a\0b".into(),
            session: Some("s\u{10FFFF}".into()),
            dated: UnixTime::MAX,
        }),
        grant: Some(Grant { superseded: Some(Superseded { at: UnixTime::MAX, count: 7 }) }),
        revoked: Some(RevokedAt { at: LOGIN, reason: RevokeReason::Admin }),
        ..login("", LOGIN)
    };
    assert_eq!(store.issue(family.clone(), ANY, LOGIN.into()).await.expect("the store works"), Some(family.clone()));
    assert_eq!(stored(store, &family).await, family);
    assert_eq!(store.family(TokenId::random()).await.expect("the store works"), None);
}

pub(crate) async fn a_login_beyond_the_limit_ends_the_least_recently_used(store: &dyn Store) {
    let mut families = Vec::new();
    for count in 0..3 {
        families.push(issued(store, "alice", LOGIN + seconds(count)).await);
    }
    let neighbour = issued(store, "bob", LOGIN).await;
    // The oldest login was used last, so the limit does not end it.
    rotated(store, &families[0], 1, LOGIN + seconds(5)).await;
    let now = LOGIN + seconds(6);
    let newest = store.issue(login("alice", now), 2, LOGIN.into()).await.expect("the store works").expect("issued");

    assert_eq!(why_revoked(store, &families[0]).await, None);
    assert_eq!(why_revoked(store, &families[1]).await, Some(RevokeReason::Limit));
    assert_eq!(why_revoked(store, &families[2]).await, Some(RevokeReason::Limit));
    assert_eq!(why_revoked(store, &newest).await, None);
    assert_eq!(why_revoked(store, &neighbour).await, None);
    let log = store.revocations_since(0).await.expect("the store works");
    let ended: Vec<_> = log.iter().map(|revocation| &revocation.what).collect();
    assert_eq!(ended, [&Revoked::Family(families[2].id), &Revoked::Family(families[1].id)]);
    let recorded = store.undelivered(100).await.expect("the store works");
    let lines: Vec<String> =
        recorded.iter().map(|event| event.line()).filter(|line| line.contains("revoked")).collect();
    assert_eq!(lines.len(), 2);
    for (line, family) in lines.iter().zip([&families[2], &families[1]]) {
        assert!(line.contains(&family.id.to_string()), "the event names another session: {line}");
    }
}

pub(crate) async fn the_limit_counts_only_live_families(store: &dyn Store) {
    let living = issued(store, "alice", LOGIN).await;
    let logged_out = issued(store, "alice", LOGIN).await;
    store.revoke_family(logged_out.id, owner("alice"), LOGIN.into()).await.expect("the store works");
    let idle = Family { idle_expiry: LOGIN + seconds(1), ..login("alice", LOGIN) };
    store.issue(idle, ANY, LOGIN.into()).await.expect("the store works");

    store.issue(login("alice", LOGIN + seconds(1)), 2, LOGIN.into()).await.expect("the store works");
    assert_eq!(why_revoked(store, &living).await, None);
}

pub(crate) async fn a_family_counts_until_its_last_moment(store: &dyn Store) {
    let last_moment = LOGIN + seconds(1) - Duration::from_millis(1);
    let idle = Family { idle_expiry: LOGIN + seconds(1), ..login("alice", LOGIN) };
    let over = Family { absolute_expiry: LOGIN + seconds(1), ..login("bob", LOGIN) };
    for family in [idle, over] {
        let family = store.issue(family, ANY, LOGIN.into()).await.expect("the store works").expect("issued");
        store.issue(login(&family.subject, last_moment), 1, last_moment.into()).await.expect("the store works");
        assert_eq!(why_revoked(store, &family).await, Some(RevokeReason::Limit));
    }
}

pub(crate) async fn the_limit_never_ends_the_newest_login(store: &dyn Store) {
    let before = issued(store, "alice", LOGIN).await;
    // The clock was set back by an hour between the logins.
    let early = login("alice", LOGIN - seconds(3_600));
    let newest = store.issue(early, 0, LOGIN.into()).await.expect("the store works").expect("issued");
    assert_eq!(why_revoked(store, &before).await, Some(RevokeReason::Limit));
    assert_eq!(why_revoked(store, &newest).await, None);
}

pub(crate) async fn an_id_is_taken_once(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let thief = Family { id: family.id, ..login("mallory", LOGIN) };
    let (rejection, beside) =
        (store.issue(thief, ANY, LOGIN.into()), store.issue(login("bob", LOGIN), ANY, LOGIN.into()));
    assert!(rejection.await.is_err());
    beside.await.expect("the failure of another operation does no harm");
    assert_eq!(stored(store, &family).await, family);
}

pub(crate) async fn only_the_owner_and_admins_revoke(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let revoke = |id, by| store.revoke_family(id, by, LOGIN.into());
    assert_eq!(revoke(family.id, owner("mallory")).await.expect("the store works"), RevokeOutcome::NotFound);
    assert_eq!(revoke(TokenId::random(), RevokedBy::Admin).await.expect("the store works"), RevokeOutcome::NotFound);
    assert_eq!(stored(store, &family).await, family);

    assert_eq!(revoke(family.id, owner("alice")).await.expect("the store works"), RevokeOutcome::Revoked);
    assert_eq!(why_revoked(store, &family).await, Some(RevokeReason::Logout));
    let other = issued(store, "alice", LOGIN).await;
    assert_eq!(revoke(other.id, RevokedBy::Admin).await.expect("the store works"), RevokeOutcome::Revoked);
    assert_eq!(why_revoked(store, &other).await, Some(RevokeReason::Admin));
}

pub(crate) async fn revoked_families_are_not_revoked_again(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let revoke = |by, now: UnixTime| store.revoke_family(family.id, by, now.into());
    revoke(owner("alice"), LOGIN).await.expect("the store works");
    let ended = stored(store, &family).await;

    let later = LOGIN + seconds(60);
    assert_eq!(revoke(owner("alice"), later).await.expect("the store works"), RevokeOutcome::AlreadyEnded);
    assert_eq!(revoke(RevokedBy::Admin, later).await.expect("the store works"), RevokeOutcome::AlreadyEnded);
    assert_eq!(revoke(owner("mallory"), later).await.expect("the store works"), RevokeOutcome::NotFound);
    assert_eq!(stored(store, &family).await, ended);
    assert_eq!(store.revocations_since(0).await.expect("the store works").len(), 1);
}

/// An access token issued just before the family expires outlives it, and its owner must be able to revoke it.
pub(crate) async fn an_expired_family_is_revoked_while_its_last_token_may_live(store: &dyn Store) {
    let just_before = LONGEST_LIFE - Duration::from_millis(1);
    for (after, outcome) in [
        (seconds(0), RevokeOutcome::Revoked),
        (just_before, RevokeOutcome::Revoked),
        (LONGEST_LIFE, RevokeOutcome::AlreadyEnded),
        (LONGEST_LIFE + Duration::from_millis(1), RevokeOutcome::AlreadyEnded),
    ] {
        let family = issued(store, "alice", LOGIN).await;
        let now = family.idle_expiry + after;
        assert_eq!(store.revoke_family(family.id, owner("alice"), now.into()).await.expect("the store works"), outcome);
    }
}

pub(crate) async fn confirming_only_raises_and_only_what_exists(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    rotated(store, &family, 1, LOGIN).await;
    rotated(store, &family, 2, LOGIN).await;
    let other = issued(store, "bob", LOGIN).await;
    for (seen, confirmed) in [(2, 2), (1, 2), (4, 2), (u64::MAX, 2), (3, 3)] {
        let batch = vec![(TokenId::random(), 1), (family.id, seen), (other.id, 1)];
        store.confirm(batch).await.expect("the store works");
        assert_eq!(stored(store, &family).await.confirmed, confirmed, "after generation {seen} was seen");
    }
    assert_eq!(stored(store, &other).await.confirmed, 1);
    store.confirm(vec![]).await.expect("an empty batch is no error");
}

pub(crate) async fn a_subject_sees_its_families_newest_first(store: &dyn Store) {
    let first = issued(store, "alice", LOGIN).await;
    let third = issued(store, "alice", LOGIN + seconds(2)).await;
    let second = issued(store, "alice", LOGIN + seconds(1)).await;
    issued(store, "bob", LOGIN).await;
    store.revoke_family(second.id, owner("alice"), (LOGIN + seconds(2)).into()).await.expect("the store works");
    let listed = store.families_of("alice".into()).await.expect("the store works");
    assert_eq!(listed, [third, stored(store, &second).await, first], "revoked families are listed");

    let many: Vec<_> = (0..1_001).map(|_| store.issue(login("carol", LOGIN), ANY, LOGIN.into())).collect();
    for answer in many {
        answer.await.expect("the store works");
    }
    assert_eq!(store.families_of("carol".into()).await.expect("the store works").len(), 1_000);
    assert!(store.families_of("unknown".into()).await.expect("the store works").is_empty());
}

pub(crate) async fn signing_keys_change_as_decided(store: &dyn Store) {
    let key = |kid: &str, later: Duration| StoredKey {
        kid: kid.into(),
        algorithm: "ES256".into(),
        root: 255,
        sealed: vec![0, 255, 1],
        created_at: LOGIN + later,
        activated_at: None,
        retired_at: Some(LOGIN),
        revoked_at: Some(UnixTime::MAX),
        token_life: Duration::from_millis(900_001),
    };
    let (a, b) = (key("a", Duration::ZERO), key("b", AFTER_GRACE));
    // Two gateways start on an empty store, and each tries to create the first key.
    let first = |new: &StoredKey| {
        let new = new.clone();
        store.change_signing_keys(
            Box::new(move |keys| if keys.is_empty() { vec![new.clone()] } else { keys }),
            LOGIN.into(),
        )
    };
    let (one, other) = (first(&a), first(&b));
    let (one, other) = (one.await.expect("the store works"), other.await.expect("the store works"));
    assert!(one.before.is_empty() && one.after == [a.clone()], "every field comes back: {one:?}");
    assert_eq!((other.before, other.after), (vec![a.clone()], vec![a.clone()]));

    let changed = StoredKey { activated_at: Some(LOGIN), sealed: Vec::new(), root: 0, ..a };
    let both = vec![changed.clone(), b.clone()];
    let written =
        store.change_signing_keys(Box::new(move |_| both.clone()), LOGIN.into()).await.expect("the store works");
    assert_eq!(written.after.len(), 2);
    let unchanged = store.change_signing_keys(Box::new(|keys| keys), LOGIN.into()).await.expect("the store works");
    assert_eq!(unchanged.before, [b.clone(), changed], "the newest first");
    let last = b.clone();
    let gone =
        store.change_signing_keys(Box::new(move |_| vec![last.clone()]), LOGIN.into()).await.expect("the store works");
    assert_eq!(gone.after, [b]);
    let left = store.change_signing_keys(Box::new(|keys| keys), LOGIN.into()).await.expect("the store works");
    assert_eq!(left.before.len(), 1);
}

pub(crate) async fn a_working_store_passes_its_check(store: &dyn Store) {
    store.check().await.expect("the store works");
    store.check().await.expect("the store works");
}

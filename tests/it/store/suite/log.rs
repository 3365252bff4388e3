//! The log of revocations, watermarks, and sweeping.

use std::time::Duration;

use bearward::store::{Expired, RevokedBy, Store};
use bearward::tokens::family::RevokeReason;
use bearward::tokens::family::revocation::Revoked;
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;

use crate::support::given::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn token(jti: &str) -> Revoked {
    Revoked::Token { issuer: "https://login.example".into(), jti: jti.into() }
}

fn subject(subject: &str, not_after: UnixTime) -> Revoked {
    Revoked::Subject { issuer: ISSUER.into(), subject: subject.into(), not_after }
}

async fn revoke(store: &dyn Store, what: Revoked, now: UnixTime) -> u64 {
    store.revoke(what, now.into()).await.expect("the store works")
}

pub(crate) async fn the_log_has_no_gaps_and_starts_at_the_given_entry(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let everything = Revoked::Everything { not_after: UnixTime::from_secs(1) };
    let written = [token("é"), subject("bob", LOGIN), Revoked::Family(family.id), everything];
    assert_eq!(revoke(store, written[0].clone(), LOGIN).await, 1);
    assert_eq!(revoke(store, written[1].clone(), LOGIN + SECOND).await, 2);
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    assert_eq!(revoke(store, written[3].clone(), LOGIN).await, 4);

    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log.iter().map(|each| each.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(log.iter().map(|each| each.what.clone()).collect::<Vec<_>>(), written);
    assert_eq!((log[1].at, log[1].until), (LOGIN + SECOND, LOGIN + SECOND + LONGEST_LIFE));
    assert_eq!(store.revocations_since(2).await.expect("the store works"), log[2..]);
}

pub(crate) async fn a_family_is_only_revoked_with_an_actor(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    assert!(store.revoke(Revoked::Family(family.id), LOGIN.into()).await.is_err());
    assert_eq!(stored(store, &family).await, family);
}

pub(crate) async fn a_subjects_watermark_ends_its_families(store: &dyn Store) {
    let alice = issued(store, "alice", LOGIN).await;
    let later = issued(store, "alice", LOGIN + MILLISECOND).await;
    let bob = issued(store, "bob", LOGIN).await;
    revoke(store, subject("alice", LOGIN), LOGIN + SECOND).await;

    assert_eq!(rejection(store, &alice, 1, LOGIN + SECOND).await, Reason::GrantRevoked);
    rotated(store, &later, 1, LOGIN + SECOND).await;
    rotated(store, &bob, 1, LOGIN + SECOND).await;
    let shown = store.families_of("alice".into()).await.expect("the store works");
    let reasons: Vec<_> = shown.iter().map(|family| family.revoked.map(|revoked| revoked.reason)).collect();
    assert_eq!(reasons, [None, Some(RevokeReason::Admin)], "the list shows the family as revoked");
    assert_eq!(stored(store, &alice).await, shown[1]);
}

pub(crate) async fn a_watermark_is_never_lowered(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    revoke(store, subject("alice", LOGIN), LOGIN).await;
    revoke(store, subject("alice", LOGIN - SECOND), LOGIN).await;
    assert_eq!(rejection(store, &family, 1, LOGIN).await, Reason::GrantRevoked);

    let family = issued(store, "bob", LOGIN).await;
    revoke(store, Revoked::Everything { not_after: LOGIN }, LOGIN).await;
    revoke(store, Revoked::Everything { not_after: LOGIN - SECOND }, LOGIN).await;
    assert_eq!(rejection(store, &family, 1, LOGIN).await, Reason::GrantRevoked);
}

pub(crate) async fn a_watermark_over_everything_ends_all(store: &dyn Store) {
    let alice = issued(store, "alice", LOGIN).await;
    let bob = issued(store, "bob", LOGIN + SECOND).await;
    revoke(store, subject("bob", LOGIN - SECOND), LOGIN).await;
    revoke(store, Revoked::Everything { not_after: LOGIN + SECOND }, LOGIN + SECOND).await;
    for family in [&alice, &bob] {
        assert_eq!(rejection(store, family, 1, LOGIN + SECOND).await, Reason::GrantRevoked);
    }
    revoke(store, subject("bob", LOGIN), LOGIN).await;
    assert_eq!(rejection(store, &bob, 1, LOGIN + SECOND).await, Reason::GrantRevoked, "the later watermark counts");
}

pub(crate) async fn a_watermark_of_another_issuer_has_no_effect(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let issuer = "https://login.example".into();
    revoke(store, Revoked::Subject { issuer, subject: "alice".into(), not_after: LOGIN }, LOGIN).await;
    rotated(store, &family, 1, LOGIN).await;
}

pub(crate) async fn a_watermark_over_our_issuer_ends_all(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let issuer = |name: &str| Revoked::Issuer { issuer: name.into(), not_after: LOGIN };
    revoke(store, issuer("https://login.example"), LOGIN).await;
    let family = rotated(store, &family, 1, LOGIN).await;
    revoke(store, issuer(ISSUER), LOGIN).await;
    assert_eq!(rejection(store, &family, 2, LOGIN).await, Reason::GrantRevoked);
    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(
        log.iter().map(|each| each.what.clone()).collect::<Vec<_>>(),
        [issuer("https://login.example"), issuer(ISSUER)]
    );
    assert!(log.iter().all(|each| each.until == LOGIN + LONGEST_LIFE));
}

/// A client can refresh with an expired access token. Only this record rejects the token there.
pub(crate) async fn a_revoked_token_is_kept_as_long_as_its_family(store: &dyn Store) {
    let ours = Revoked::Token { issuer: ISSUER.into(), jti: "1".into() };
    revoke(store, ours.clone(), LOGIN).await;
    revoke(store, token("1"), LOGIN).await;
    let remembered = async || {
        let log = store.revocations_since(0).await.expect("the store works");
        log.into_iter().map(|each| each.what).collect::<Vec<_>>()
    };
    assert_eq!(remembered().await, [ours.clone(), token("1")]);
    for now in [LOGIN + LONGEST_LIFE + MILLISECOND, LOGIN + LONGEST_FAMILY] {
        assert_eq!(store.sweep(now, 100).await.expect("the store works"), usize::from(now < LOGIN + LONGEST_FAMILY));
        assert_eq!(remembered().await, std::slice::from_ref(&ours));
    }
    let over = LOGIN + LONGEST_FAMILY + MILLISECOND;
    let swept = store.sweep(over, 100).await.expect("the store works");
    assert_eq!(swept, 3, "its revocation, and both entries of the list of what was ended");
    assert_eq!(remembered().await, []);
}

pub(crate) async fn a_login_right_after_a_watermark_is_valid(store: &dyn Store) {
    let issue = |subject, now| store.issue(login(subject, now), ANY, UnixTime::into(now));
    revoke(store, subject("alice", LOGIN), LOGIN).await;
    for began in [LOGIN - SECOND, LOGIN] {
        assert_eq!(issue("alice", began).await.expect("the store works"), None, "it began before");
    }
    assert_eq!(store.families_of("alice".into()).await.expect("the store works"), []);
    let family = issued(store, "alice", LOGIN + MILLISECOND).await;
    assert_eq!(stored(store, &family).await, family);
    assert_eq!(family.created_at, LOGIN + MILLISECOND);
    rotated(store, &family, 1, LOGIN + MILLISECOND).await;
    issued(store, "bob", LOGIN).await;

    for everything in [Revoked::Everything { not_after: LOGIN + SECOND }, own_issuer(LOGIN + SECOND * 2)] {
        let mark = everything.not_after().expect("a watermark");
        revoke(store, everything, mark).await;
        assert_eq!(issue("bob", mark).await.expect("the store works"), None);
        issued(store, "bob", mark + MILLISECOND).await;
    }
}

fn own_issuer(not_after: UnixTime) -> Revoked {
    Revoked::Issuer { issuer: ISSUER.into(), not_after }
}

pub(crate) async fn the_sweep_removes_expired_entries(store: &dyn Store) {
    let logged_out = issued(store, "alice", LOGIN).await;
    let living = issued(store, "alice", LOGIN + SECOND).await;
    store.revoke_family(logged_out.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    revoke(store, token("a"), LOGIN + SECOND).await;
    let sweep = |now| store.sweep(now, 100);

    assert_eq!(
        sweep(LOGIN + LONGEST_LIFE).await.expect("the store works"),
        0,
        "every entry is kept until the last moment"
    );
    assert_eq!(
        sweep(LOGIN + LONGEST_LIFE + MILLISECOND).await.expect("the store works"),
        1,
        "one revocation was removed"
    );
    assert_eq!(stored(store, &logged_out).await.id, logged_out.id, "the tombstone is kept");
    assert_eq!(
        sweep(logged_out.absolute_expiry).await.expect("the store works"),
        1,
        "the other revocation was removed"
    );

    let last_token_ended = logged_out.absolute_expiry + LONGEST_LIFE + MILLISECOND;
    assert_eq!(
        sweep(last_token_ended - MILLISECOND).await.expect("the store works"),
        2,
        "both entries of the list were removed; the tombstone is kept as long as a token"
    );
    assert_eq!(sweep(last_token_ended).await.expect("the store works"), 1, "the tombstone was removed");
    assert_eq!(store.family(logged_out.id).await.expect("the store works"), None);
    assert_eq!(stored(store, &living).await, living);
    assert_eq!(revoke(store, token("b"), LOGIN).await, 3, "the sequence goes on");
}

pub(crate) async fn what_waits_for_the_sweep_is_counted(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("the store works");
    revoke(store, token("a"), LOGIN + SECOND).await;
    revoke(store, subject("bob", LOGIN), LOGIN + SECOND).await;
    let first = LOGIN + LONGEST_LIFE;
    let expired = async |now, limit| store.expired(now, limit).await.expect("the store works");
    assert_eq!(expired(first, 100).await, Expired::default(), "every entry is kept until the last moment");
    assert_eq!(expired(first + MILLISECOND, 100).await, Expired { rows: 1, oldest: Some(first) });
    let late = LOGIN + LIFETIMES.absolute * 2;
    let all = expired(late, 100).await;
    assert_eq!(all.oldest, Some(first));
    assert_eq!(all.age(late), late.since(first));
    // Of the log, and of the list of what was ended, two rows of three.
    assert_eq!(expired(late, 2).await.rows, all.rows - 2);
    assert_eq!(store.sweep(late, 100).await.expect("the store works") as u64, all.rows);
    assert_eq!(expired(late, 100).await, Expired::default());
}

pub(crate) async fn the_sweep_removes_at_most_the_given_count(store: &dyn Store) {
    for count in 0..5 {
        issued(store, "alice", LOGIN).await;
        revoke(store, token(&count.to_string()), LOGIN).await;
    }
    let mut went = Vec::new();
    for _ in 0..4 {
        went.push(store.sweep(LOGIN + LIFETIMES.absolute * 2, 2).await.expect("the store works"));
    }
    assert_eq!(went, [6, 6, 3, 0], "sessions, revocations, and entries of the list of what was ended");
}

pub(crate) async fn watermarks_outlive_what_they_revoke(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    revoke(store, subject("alice", LOGIN), LOGIN).await;
    revoke(store, subject("carol", LOGIN), LOGIN).await;
    let over = LOGIN + LONGEST_LIFE + MILLISECOND;
    assert_eq!(store.sweep(over, 100).await.expect("the store works"), 3, "two revocations and carol's watermark");
    assert_eq!(rejection(store, &family, 1, over).await, Reason::GrantRevoked);

    let gone = family.absolute_expiry + LONGEST_LIFE + MILLISECOND;
    let swept = store.sweep(gone, 100).await.expect("the store works");
    assert_eq!(swept, 4, "the family, alice's watermark, and both entries of the list of what was ended");
}

pub(crate) async fn a_login_between_two_watermarks_of_one_second_is_revoked(store: &dyn Store) {
    let at = |millis| LOGIN + MILLISECOND * millis;
    for (first, what) in [(0, subject as fn(&str, UnixTime) -> Revoked), (10, |_, not_after| own_issuer(not_after))] {
        revoke(store, what("alice", at(first)), at(first)).await;
        let between = issued(store, "alice", at(first + 1)).await;
        rotated(store, &between, 1, at(first + 1)).await;
        revoke(store, what("alice", at(first + 2)), at(first + 2)).await;
        assert_eq!(rejection(store, &between, 2, at(first + 2)).await, Reason::GrantRevoked);
        let after = issued(store, "alice", at(first + 3)).await;
        rotated(store, &after, 1, at(first + 3)).await;
    }
}

/// The refresh is written first, with a later time. The session is older than the watermark all the same.
pub(crate) async fn a_refresh_does_not_escape_a_watermark(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    rotated(store, &family, 1, LOGIN + SECOND).await;
    revoke(store, subject("alice", LOGIN + MILLISECOND), LOGIN + MILLISECOND).await;
    assert_eq!(rejection(store, &family, 2, LOGIN + SECOND).await, Reason::GrantRevoked);
    assert!(stored(store, &family).await.revoked.is_some());
}

/// The clock was set back after the login.
pub(crate) async fn a_watermark_of_now_ends_families_dated_later(store: &dyn Store) {
    let issuer = |name: &str| Revoked::Issuer { issuer: name.into(), not_after: LOGIN };
    for what in [subject("alice", LOGIN), issuer(ISSUER), Revoked::Everything { not_after: LOGIN }] {
        let later = issued(store, "alice", LOGIN + SECOND).await;
        revoke(store, what.clone(), LOGIN + MILLISECOND).await;
        revoke(store, issuer("https://login.example"), LOGIN).await;
        rotated(store, &later, 1, LOGIN + SECOND).await;
        revoke(store, what, LOGIN).await;
        assert_eq!(rejection(store, &later, 2, LOGIN + SECOND).await, Reason::GrantRevoked);
        let log = store.revocations_since(0).await.expect("the store works");
        let last = log.last().map(|last| &last.what);
        assert_eq!(last, Some(&Revoked::Family(later.id)), "its access tokens are revoked too");
    }
}

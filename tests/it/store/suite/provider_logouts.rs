//! Logins at providers of which the session has ended, for the providers to be told.

use bearward::store::{CLAIM_TIME, ProviderLogin, RefreshedLogin, Renewed, SavedLogin, Store};
use bearward::tokens::family::Family;
use bearward::tokens::family::revocation::Revoked;
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use serde_json::json;

use super::provider_logins::{
    DAY, DUE, HOUR, MILLISECOND, MINUTE, ONE, PROVIDER, SECOND, begun, claim, claimed, end, family, found, lease, save,
    save_tokens, tokens,
};
use crate::support::given::*;

async fn to_revoke(store: &dyn Store, now: UnixTime) -> Vec<(TokenId, ProviderLogin)> {
    let mut logins = store.logins_to_revoke("corp".into(), now, 100).await.expect("the store works");
    logins.sort_by_key(|(id, _)| id.to_string());
    logins
}

async fn ids_to_revoke(store: &dyn Store, now: UnixTime) -> Vec<TokenId> {
    to_revoke(store, now).await.into_iter().map(|(id, _)| id).collect()
}

fn sorted<const N: usize>(families: [&Family; N]) -> Vec<TokenId> {
    let mut ids: Vec<_> = families.iter().map(|family| family.id).collect();
    ids.sort_by_key(TokenId::to_string);
    ids
}

pub(crate) async fn tokens_of_an_ended_session_are_only_told(store: &dyn Store) {
    let family = claimed(store, "alice").await;
    lease(store, &family, 0, ONE, LOGIN).await;
    end(store, &family, LOGIN + SECOND).await;
    let now = LOGIN + SECOND * 2;
    assert_eq!(to_revoke(store, now).await, [], "its tokens are being refreshed");
    let claims = json!({ "admin": true }).as_object().cloned().expect("an object");
    let scope = "admin".into();
    let renewed = Some(Renewed { scope, claims, due_before: DUE });
    let refreshed = RefreshedLogin { login: tokens(1), renewed };
    let saved = store.save_login(family.id, ONE, refreshed, now.into());
    assert_eq!(saved.await.expect("the store works"), SavedLogin::Ended);
    let after = stored(store, &family).await;
    assert_eq!((after.scope, after.claims, after.idle_expiry), (family.scope, family.claims, family.idle_expiry));
    let told = ProviderLogin { claimed: true, ..tokens(1) };
    assert_eq!(to_revoke(store, now).await, [(family.id, told)], "the newest tokens");

    let gone = login("alice", LOGIN);
    assert_eq!(save(store, &gone, tokens(1), now).await, SavedLogin::Forgotten);
}

/// Newer tokens arrive after the caller has got the login.
pub(crate) async fn only_tokens_that_were_told_are_forgotten(store: &dyn Store) {
    let family = claimed(store, "alice").await;
    lease(store, &family, 0, ONE, LOGIN).await;
    end(store, &family, LOGIN).await;
    // The response to the refresh comes after its lease.
    let late = LOGIN + MINUTE;
    assert_eq!(to_revoke(store, late).await, [(family.id, ProviderLogin { claimed: true, ..tokens(0) })]);
    assert_eq!(save_tokens(store, &family, tokens(1), late).await, SavedLogin::Ended);
    store.forget_login(family.id, 0).await.expect("the store works");
    assert_eq!(to_revoke(store, late).await, [(family.id, ProviderLogin { claimed: true, ..tokens(1) })]);
    store.forget_login(family.id, 1).await.expect("the store works");
    assert_eq!(save_tokens(store, &family, tokens(2), late).await, SavedLogin::Forgotten);
}

pub(crate) async fn each_end_of_a_session_is_found(store: &dyn Store) {
    let (alive, logged_out) = (claimed(store, "alice").await, claimed(store, "bob").await);
    let (of_session, of_subject) = (claimed(store, "carol").await, claimed(store, "dave").await);
    let idle = Family { idle_expiry: LOGIN + MINUTE, ..family("erin") };
    let idle = store.begin_login(idle, ProviderLogin { claimed: true, ..tokens(0) }, None, ANY, LOGIN.into()).await;
    let idle = idle.expect("the store works").expect("not void");
    assert_eq!(to_revoke(store, LOGIN + SECOND).await, []);
    end(store, &logged_out, LOGIN).await;
    let session = Revoked::Session { issuer: PROVIDER.into(), session: "session of carol".into() };
    store.revoke(session, LOGIN.into()).await.expect("the store works");
    let now = LOGIN + SECOND;
    assert_eq!(ids_to_revoke(store, now).await, sorted([&logged_out, &of_session]));
    let subject = Revoked::Subject { issuer: ISSUER.into(), subject: "corp|dave".into(), not_after: LOGIN };
    store.revoke(subject, now.into()).await.expect("the store works");
    assert_eq!(ids_to_revoke(store, now).await, sorted([&of_subject]));
    assert_eq!(ids_to_revoke(store, LOGIN + MINUTE - MILLISECOND).await, []);
    assert_eq!(ids_to_revoke(store, LOGIN + MINUTE).await, sorted([&idle]));

    // Those that the caller could not tell come again.
    for told in [&logged_out, &idle] {
        store.forget_login(told.id, 0).await.expect("the store works");
    }
    assert_eq!(ids_to_revoke(store, now + MINUTE - MILLISECOND).await, []);
    assert_eq!(ids_to_revoke(store, now + MINUTE).await, sorted([&of_session, &of_subject]));
    store.revoke(Revoked::Everything { not_after: LOGIN }, now.into()).await.expect("the store works");
    assert_eq!(ids_to_revoke(store, now + MINUTE).await, sorted([&alive]));
}

pub(crate) async fn an_unclaimed_login_ends_after_five_minutes(store: &dyn Store) {
    let (unclaimed, used) = (begun(store, "alice").await, claimed(store, "bob").await);
    let refreshed = begun(store, "carol").await;
    save(store, &refreshed, tokens(1), LOGIN).await;
    let end = LOGIN + CLAIM_TIME;
    assert_eq!(to_revoke(store, end - MILLISECOND).await, []);
    assert_eq!(stored(store, &unclaimed).await.revoked, None);
    assert_eq!(to_revoke(store, end).await.len(), 2);
    for family in [&unclaimed, &refreshed] {
        assert_eq!(stored(store, family).await.revoked.map(|revoked| revoked.at), Some(end));
    }
    assert_eq!(stored(store, &used).await.revoked, None);
    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log.len(), 2, "its handle is rejected everywhere");
    store.claim_login(unclaimed.id, end).await.expect("the store works");
    assert!(found(store, unclaimed.id).await.is_some_and(|(_, login)| !login.claimed), "it is too late");
}

/// The client may use its session for the first time while an operator ends it.
pub(crate) async fn a_first_use_after_the_end_delays_nothing(store: &dyn Store) {
    let family = begun(store, "alice").await;
    end(store, &family, LOGIN + SECOND).await;
    let now = LOGIN + SECOND * 2;
    assert_eq!(ids_to_revoke(store, now).await, [family.id]);
    store.claim_login(family.id, now).await.expect("the store works");
    assert_eq!(ids_to_revoke(store, now + HOUR).await, [family.id]);
}

pub(crate) async fn a_session_that_lives_on_is_not_told(store: &dyn Store) {
    let ends = LOGIN + DAY;
    let family = Family { idle: Some(DAY), idle_expiry: ends, ..family("alice") };
    claim(store, &family).await;
    let used = ends - MINUTE;
    store.used(family.id, used).await.expect("the store works");
    // A refresh is no use.
    assert_eq!(save(store, &family, tokens(1), ends - SECOND).await, SavedLogin::Saved);
    assert_eq!(to_revoke(store, ends).await, []);
    assert_eq!(to_revoke(store, used + DAY - MILLISECOND).await, []);
    assert_eq!(ids_to_revoke(store, used + DAY).await, [family.id]);
}

pub(crate) async fn at_most_the_wanted_number_is_found(store: &dyn Store) {
    for number in 0..5 {
        end(store, &begun(store, &number.to_string()).await, LOGIN).await;
    }
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(store.logins_to_revoke("corp".into(), LOGIN, 2).await.expect("the store works").len());
    }
    assert_eq!(told, [2, 2, 1, 0]);
}

/// A provider that hangs keeps none of those of another one.
pub(crate) async fn the_logins_of_one_provider_are_found_alone(store: &dyn Store) {
    let one = claimed(store, "alice").await;
    let other = family("bob");
    let login = ProviderLogin { provider: "other".into(), claimed: true, ..tokens(0) };
    let begun = store.begin_login(other.clone(), login, None, 100, LOGIN.into());
    assert!(begun.await.expect("the store works").is_some());
    end(store, &one, LOGIN).await;
    end(store, &other, LOGIN).await;
    // A watermark ends both as well.
    store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("the store works");
    for (provider, expected) in [("unknown", vec![]), ("corp", vec![one.id]), ("other", vec![other.id])] {
        let found = store.logins_to_revoke(provider.into(), LOGIN, 100).await.expect("the store works");
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected, "{provider}");
    }
}

/// A sweep can come at any moment: between the end of a session and the next look at it, while its tokens are being
/// refreshed, and as the first thing of a gateway that was stopped for days.
pub(crate) async fn a_sweep_leaves_logins_that_are_still_to_be_told(store: &dyn Store) {
    let (unnoticed, held) = (claimed(store, "alice").await, claimed(store, "bob").await);
    let (of_session, expired) = (claimed(store, "carol").await, claimed(store, "dave").await);
    lease(store, &held, 0, ONE, LOGIN).await;
    let now = LOGIN + SECOND;
    for family in [&unnoticed, &held] {
        end(store, family, now).await;
    }
    let session = Revoked::Session { issuer: PROVIDER.into(), session: "session of carol".into() };
    store.revoke(session, now.into()).await.expect("the store works");
    store.sweep(now, 100).await.expect("the store works");
    assert_eq!(ids_to_revoke(store, now).await, sorted([&unnoticed, &of_session]), "the other one is being refreshed");
    store.sweep(now, 100).await.expect("the store works");
    assert_eq!(save(store, &held, tokens(1), now).await, SavedLogin::Ended);
    store.sweep(now, 100).await.expect("the store works");
    assert_eq!(to_revoke(store, now).await, [(held.id, ProviderLogin { claimed: true, ..tokens(1) })]);

    let days_later = expired.idle_expiry + DAY * 3;
    store.sweep(days_later, 100).await.expect("the store works");
    let all = sorted([&unnoticed, &held, &of_session, &expired]);
    assert_eq!(ids_to_revoke(store, days_later).await, all, "one attempt is no day of attempts");
}

pub(crate) async fn a_login_is_swept_after_a_day_of_attempts(store: &dyn Store) {
    let told = claimed(store, "alice").await;
    end(store, &told, LOGIN).await;
    let begun = LOGIN + SECOND;
    for hours in 0..24 {
        let now = begun + HOUR * hours;
        assert_eq!(ids_to_revoke(store, now).await, [told.id], "{hours}");
        store.sweep(now, 100).await.expect("the store works");
    }
    let ends = begun + DAY;
    assert_eq!(ids_to_revoke(store, ends).await, [told.id]);
    store.sweep(ends, 100).await.expect("the store works");
    assert!(found(store, told.id).await.is_some());
    store.sweep(ends + MILLISECOND, 100).await.expect("the store works");
    assert_eq!(found(store, told.id).await, None);
}

/// A gateway that is stopped, and a machine that sleeps, make no attempts.
pub(crate) async fn only_attempts_count_for_the_day_of_a_login(store: &dyn Store) {
    let told = claimed(store, "alice").await;
    end(store, &told, LOGIN).await;
    let mut now = LOGIN + SECOND;
    for stop in 0..23 {
        assert_eq!(ids_to_revoke(store, now).await, [told.id], "{stop}");
        now = now + DAY * 3;
        store.sweep(now, 100).await.expect("the store works");
    }
    // Each pause counts as an hour, so that none keeps it for ever.
    for attempt in 0..2 {
        assert_eq!(ids_to_revoke(store, now).await, [told.id], "{attempt}");
        now = now + HOUR + MINUTE;
    }
    store.sweep(now, 100).await.expect("the store works");
    assert_eq!(to_revoke(store, now).await, []);
}

/// No gateway has a provider of its name any more, so that none looks.
pub(crate) async fn a_login_that_no_gateway_tries_is_swept_after_a_day(store: &dyn Store) {
    let unnoticed = claimed(store, "bob").await;
    let alive = Family { idle_expiry: unnoticed.idle_expiry + DAY * 7, ..family("carol") };
    claim(store, &alive).await;
    let ends = unnoticed.idle_expiry;
    store.sweep(ends + DAY, 100).await.expect("the store works");
    assert!(found(store, unnoticed.id).await.is_some());
    // The sweep notices it, and a gateway that runs for hours deletes it a day later.
    let noticed = ends + DAY + MILLISECOND;
    store.sweep(noticed, 100).await.expect("the store works");
    for hours in (0..=6).rev() {
        store.sweep(noticed + DAY - HOUR * hours, 100).await.expect("the store works");
        assert!(found(store, unnoticed.id).await.is_some());
    }
    store.sweep(noticed + DAY + MILLISECOND, 100).await.expect("the store works");
    assert_eq!(found(store, unnoticed.id).await, None);
    assert!(found(store, alive.id).await.is_some());
}

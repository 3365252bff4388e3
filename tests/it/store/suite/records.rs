//! Records that a store keeps over restarts, changed settings and lost callers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bearward::store::{LogOrder, Mark, MarkKind, Marked, RevocationHook, RevokedBy, Store, StoreOptions};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;

use super::provider_logins::begun;
use crate::support::given::*;

/// Where a store is: it can be closed and opened again.
pub(crate) trait Place {
    fn open_with(&self, settings: StoreOptions, enforce: RevocationHook) -> Box<dyn Store>;

    /// What the store tells about its own revocations.
    fn order(&self) -> LogOrder;

    fn open(&self) -> Box<dyn Store> {
        self.open_with(settings(), Arc::new(|_, _| {}))
    }
}

pub(crate) async fn everything_is_kept_over_a_restart(place: &dyn Place) {
    let store = place.open();
    let family = issued(&*store, "alice", LOGIN).await;
    let living = rotated(&*store, &family, 1, LOGIN).await;
    let stolen = issued(&*store, "bob", LOGIN).await;
    rotated(&*store, &stolen, 1, LOGIN).await;
    store.confirm(vec![(stolen.id, 2)]).await.expect("confirms");
    assert!(matches!(refresh(&*store, &stolen, 1, LOGIN + AFTER_GRACE).await, Rotation::Reused(_)));
    store.revoke(Revoked::Everything { not_after: LOGIN - GRACE }, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0).await.expect("reads");
    drop(store);

    let store = place.open();
    assert_eq!(stored(&*store, &family).await, living);
    assert_eq!(rejection(&*store, &stolen, 2, LOGIN + AFTER_GRACE).await, Reason::GrantRevoked, "the reuse is kept");
    assert_eq!(store.revocations_since(0).await.expect("reads"), log);
    let next = store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("revokes");
    assert_eq!(next, log.len() as u64 + 1);
}

pub(crate) async fn an_operation_is_completed_even_if_its_caller_is_gone(place: &dyn Place) {
    let store = place.open();
    let family = issued(&*store, "alice", LOGIN).await;
    drop(store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()));
    drop(store);
    assert!(stored(&*place.open(), &family).await.revoked.is_some());
}

pub(crate) async fn a_revocation_is_enforced_before_its_caller_is_answered(place: &dyn Place) {
    let enforced: Arc<Mutex<Vec<Revocation>>> = Arc::default();
    let seen = enforced.clone();
    let expected = place.order();
    let enforce: RevocationHook = Arc::new(move |revocation: &Revocation, order| {
        // A shared store tells of it again, in order.
        if order != expected {
            return;
        }
        // Delays the enforcement, so that a response that does not wait for it would come first.
        std::thread::sleep(Duration::from_millis(20));
        seen.lock().expect("not poisoned").push(revocation.clone());
    });
    let store = place.open_with(settings(), enforce);
    let family = issued(&*store, "alice", LOGIN).await;
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0).await.expect("reads");
    assert_eq!(*enforced.lock().expect("not poisoned"), log);
    assert_eq!(log.len(), 1);
}

pub(crate) async fn a_shorter_access_lifetime_keeps_older_tokens_revocable(place: &dyn Place) {
    for (configured, remembered) in [(3_600, 3_600), (300, 3_600), (7_200, 7_200)] {
        let settings = StoreOptions { longest_life: Duration::from_secs(configured), ..settings() };
        let store = place.open_with(settings, Arc::new(|_, _| {}));
        let revoked = Revoked::Token { issuer: "https://login.example".into(), jti: configured.to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + Duration::from_secs(remembered));
    }
}

pub(crate) async fn a_shorter_family_lifetime_keeps_older_tokens_revocable(place: &dyn Place) {
    let hour = Duration::from_secs(3_600);
    for (configured, remembered) in [(48 * hour, 48 * hour), (24 * hour, 48 * hour), (72 * hour, 72 * hour)] {
        let store = place.open_with(StoreOptions { longest_family: configured, ..settings() }, Arc::new(|_, _| {}));
        let revoked = Revoked::Token { issuer: ISSUER.into(), jti: configured.as_secs().to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + remembered);
    }
}

/// A token that lived too long to be accepted may be accepted after the operator has raised `max_lifetime`.
pub(crate) async fn a_longer_lifetime_keeps_earlier_revocations(place: &dyn Place) {
    let (short, long) = (Duration::from_secs(300), Duration::from_secs(3_600));
    let issuer = String::from("https://login.example");
    let subject =
        |subject: &str, not_after| Revoked::Subject { issuer: issuer.clone(), subject: subject.into(), not_after };
    let store = place.open_with(StoreOptions { longest_life: short, ..settings() }, Arc::new(|_, _| {}));
    for what in [
        Revoked::Token { issuer: issuer.clone(), jti: "1".into() },
        subject("alice", LOGIN + short),
        subject("bob", UnixTime::MAX),
    ] {
        store.revoke(what, LOGIN.into()).await.expect("revokes");
    }
    drop(store);
    let store = place.open_with(StoreOptions { longest_life: long, ..settings() }, Arc::new(|_, _| {}));
    let (last, after) = (LOGIN + long, LOGIN + long + Duration::from_millis(1));
    store.sweep(last, 10).await.expect("sweeps");
    let kept = store.revocations_since(0).await.expect("reads");
    let until: Vec<UnixTime> = kept.iter().map(|revocation| revocation.until).collect();
    assert_eq!(until, [last, last + short, UnixTime::MAX]);
    store.sweep(after, 10).await.expect("sweeps");
    assert_eq!(store.revocations_since(0).await.expect("reads").len(), 2, "the token is too old for any limit");
}

pub(crate) async fn events_beyond_the_limit_are_lost_and_counted(place: &dyn Place) {
    let limited = StoreOptions { audit: 3, ..settings() };
    let store = place.open_with(limited.clone(), Arc::new(|_, _| {}));
    for _ in 0..5 {
        issued(&*store, "alice", LOGIN).await;
    }
    let sequences = async |store: &dyn Store| {
        let events = store.undelivered(10).await.expect("reads");
        events.iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequences(&*store).await, [1, 2, 3]);
    let lost = store.outbox().lost.load(Ordering::Relaxed);
    assert_eq!((lost, store.families_of("alice".into()).await.expect("reads").len()), (2, 5), "the logins are stored");
    drop(store);
    let store = place.open_with(limited, Arc::new(|_, _| {}));
    let waiting = store.outbox().waiting.load(Ordering::Relaxed);
    assert_eq!(waiting, 3, "undelivered events survive a restart");
    store.delivered(vec![1, 3]).await.expect("writes");
    for _ in 0..3 {
        issued(&*store, "alice", LOGIN).await;
    }
    let sequences = sequences(&*store).await;
    assert_eq!((sequences[0], sequences.len()), (2, 3), "there was room for two");
    assert_eq!(store.outbox().lost.load(Ordering::Relaxed), 1);
}

/// Families and watermarks still count after the operator changes `tokens.issuer`.
pub(crate) async fn a_watermark_survives_a_change_of_the_issuers_name(place: &dyn Place) {
    let store = place.open();
    let family = issued(&*store, "alice", LOGIN).await;
    let what = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: LOGIN };
    store.revoke(what, LOGIN.into()).await.expect("revokes");
    drop(store);

    let renamed = StoreOptions { issuer: "https://new.example".into(), ..settings() };
    let store = place.open_with(renamed, Arc::new(|_, _| {}));
    assert_eq!(rejection(&*store, &family, 1, LOGIN).await, Reason::GrantRevoked);
}

pub(crate) async fn marks_are_kept_over_a_restart(place: &dyn Place) {
    let mark = || {
        let (kind, issuer, key) = (MarkKind::LogoutToken, "https://login.example".into(), "1".into());
        Mark { kind, issuer, key, value: [7; 32], until: UnixTime::MAX }
    };
    let session = || vec![Revoked::Session { issuer: "https://login.example".into(), session: "s".into() }];
    for expected in [Marked::First, Marked::Repeated] {
        let store = place.open();
        assert_eq!(store.mark(mark(), session(), LOGIN.into()).await.expect("marks"), expected);
        assert_eq!(store.revocations_since(0).await.expect("reads").len(), 1);
    }
}

/// A store of one gateway knows that no holder is left. Otherwise the lease ends by itself.
pub(crate) async fn an_interrupted_refresh_is_found_after_a_restart(place: &dyn Place) {
    let (store, now) = (place.open(), LOGIN + Duration::from_secs(1));
    let family = begun(&*store, "alice").await;
    let until = LOGIN + Duration::from_mins(1);
    store.lease_login(family.id, 0, [1; 16], now, until).await.expect("leases");
    drop(store);
    let store = place.open();
    let found = async |now| store.interrupted_logins(now, 10).await.expect("reads").len();
    let is_alone = place.order() == LogOrder::InOrder;
    assert_eq!((found(now).await, found(until).await), (usize::from(is_alone), 1));
}

//! Logins at providers: leases and refreshed tokens.

use std::time::Duration;

use bearward::store::{LoginLease, ProviderLogin, RefreshedLogin, Renewed, RevokedBy, SavedLogin, Store};
use bearward::tokens::audit_event::EventContext;
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin, RevokeReason};
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use serde_json::json;

use crate::support::given::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);
pub(super) const PROVIDER: &str = "https://login.example";
/// When each login is due.
pub(super) const DUE: UnixTime = UnixTime::from_millis(LOGIN.as_millis() + 60_000);
pub(super) const ONE: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

pub(super) fn family(subject: &str) -> Family {
    let (issuer, session) = (PROVIDER.into(), Some(format!("session of {subject}")));
    let origin = FamilyOrigin { issuer, subject: subject.into(), session, dated: LOGIN };
    Family { origin: Some(origin), ..login(&format!("corp|{subject}"), LOGIN) }
}

pub(super) fn tokens(version: u64) -> ProviderLogin {
    let sealed = format!("\0tokens {version}\u{ff}").into_bytes();
    ProviderLogin { provider: "corp".into(), root: 255, sealed, version, due: DUE, claimed: false }
}

pub(super) async fn begun(store: &dyn Store, subject: &str) -> Family {
    let began = store.begin_login(family(subject), tokens(0), None, ANY, LOGIN.into()).await;
    began.expect("the store works").expect("not void")
}

/// A login that its browser has used.
pub(super) async fn claimed(store: &dyn Store, subject: &str) -> Family {
    claim(store, &family(subject)).await
}

pub(super) async fn claim(store: &dyn Store, family: &Family) -> Family {
    let begun = store.begin_login(family.clone(), tokens(0), None, ANY, LOGIN.into()).await;
    assert!(begun.expect("the store works").is_some(), "not void");
    store.claim_login(family.id, LOGIN + SECOND).await.expect("the store works");
    found(store, family.id).await.expect("it is there").0
}

pub(super) async fn found(store: &dyn Store, id: TokenId) -> Option<(Family, ProviderLogin)> {
    store.provider_login(id).await.expect("the store works")
}

pub(super) async fn lease(
    store: &dyn Store,
    family: &Family,
    version: u64,
    holder: [u8; 16],
    now: UnixTime,
) -> LoginLease {
    store.lease_login(family.id, version, holder, now, now + SECOND * 10).await.expect("the store works")
}

pub(super) async fn save(store: &dyn Store, family: &Family, login: ProviderLogin, now: UnixTime) -> SavedLogin {
    save_due(store, family, login, (DUE, now)).await
}

/// `due_before`: when the login was due as its holder has read it.
pub(super) async fn save_due(
    store: &dyn Store,
    family: &Family,
    login: ProviderLogin,
    (due_before, now): (UnixTime, UnixTime),
) -> SavedLogin {
    let Family { scope, claims, .. } = family.clone();
    let refreshed = RefreshedLogin { login, renewed: Some(Renewed { scope, claims, due_before }) };
    store.save_login(family.id, ONE, refreshed, now.into()).await.expect("the store works")
}

/// Saves the tokens alone, before the rest of their response counts.
pub(super) async fn save_tokens(store: &dyn Store, family: &Family, login: ProviderLogin, now: UnixTime) -> SavedLogin {
    let refreshed = RefreshedLogin { login, renewed: None };
    store.save_login(family.id, ONE, refreshed, now.into()).await.expect("the store works")
}

pub(super) async fn end(store: &dyn Store, family: &Family, now: UnixTime) {
    store.revoke_family(family.id, RevokedBy::Admin, now.into()).await.expect("the store works");
}

pub(crate) async fn a_login_comes_back_as_it_was_written(store: &dyn Store) {
    let idle = Some(Duration::from_mins(30));
    let written = Family { idle, idle_expiry: LOGIN + Duration::from_mins(30), ..family("a\0é") };
    let began = store.begin_login(written, tokens(0), None, ANY, LOGIN.into()).await;
    let family = began.expect("the store works").expect("not void");
    assert_eq!(found(store, family.id).await, Some((family.clone(), tokens(0))));
    assert_eq!(found(store, TokenId::random()).await, None);
    let other = issued(store, "alice", LOGIN).await;
    assert_eq!(found(store, other.id).await, None, "a login of our own");

    store.claim_login(family.id, LOGIN + SECOND).await.expect("the store works");
    store.claim_login(family.id, LOGIN + SECOND * 2).await.expect("the store works");
    store.claim_login(TokenId::random(), LOGIN).await.expect("the store works");
    // The first use moves the idle end.
    let idle_expiry = family.idle_expiry + SECOND;
    let used = Family { last_used_at: LOGIN + SECOND, idle_expiry, ..family.clone() };
    let claimed = ProviderLogin { claimed: true, ..tokens(0) };
    assert_eq!(found(store, family.id).await, Some((used, claimed)));

    store.forget_login(family.id, 0).await.expect("the store works");
    assert_eq!(found(store, family.id).await, None);
    assert!(stored(store, &family).await.revoked.is_none(), "the family stays");
}

pub(crate) async fn a_login_ends_the_session_that_it_replaces(store: &dyn Store) {
    let (first, other) = (begun(store, "alice").await, begun(store, "alice").await);
    let now = LOGIN + SECOND;
    let next = Family { created_at: now, ..family("bob") };
    let began = store.begin_login(next.clone(), tokens(0), Some(first.id), ANY, now.into()).await;
    assert_eq!(began.expect("the store works"), Some(next.clone()));
    let revoked = stored(store, &first).await.revoked.map(|revoked| (revoked.at, revoked.reason));
    assert_eq!(revoked, Some((now, RevokeReason::Logout)));
    assert_eq!(stored(store, &other).await.revoked, None);
    let unknown = store.begin_login(family("carol"), tokens(0), Some(TokenId::random()), ANY, now.into()).await;
    assert!(unknown.expect("the store works").is_some());
}

pub(crate) async fn a_void_login_replaces_nothing(store: &dyn Store) {
    let first = begun(store, "alice").await;
    let session = Revoked::Session { issuer: PROVIDER.into(), session: "session of bob".into() };
    store.revoke(session, LOGIN.into()).await.expect("the store works");
    let next = family("bob");
    let began = store.begin_login(next.clone(), tokens(0), Some(first.id), ANY, LOGIN.into()).await;
    assert_eq!(began.expect("the store works"), None);
    assert_eq!(found(store, next.id).await, None);
    assert_eq!(stored(store, &first).await.revoked, None);
}

pub(crate) async fn a_lease_is_exclusive_and_ends(store: &dyn Store) {
    let family = claimed(store, "alice").await;
    assert_eq!(lease(store, &family, 0, ONE, LOGIN).await, LoginLease::Granted);
    let until = LOGIN + SECOND * 10;
    assert_eq!(lease(store, &family, 0, OTHER, LOGIN).await, LoginLease::Held { until });
    assert_eq!(lease(store, &family, 0, OTHER, until - MILLISECOND).await, LoginLease::Held { until });
    assert_eq!(lease(store, &family, 0, ONE, LOGIN + SECOND).await, LoginLease::Granted, "it may call again");
    assert_eq!(lease(store, &family, 0, OTHER, until).await, LoginLease::Held { until: until + SECOND });
    assert_eq!(lease(store, &family, 0, OTHER, until + SECOND).await, LoginLease::Granted);
    assert!(matches!(lease(store, &family, 0, ONE, until + SECOND).await, LoginLease::Held { .. }));

    assert_eq!(lease(store, &login("alice", LOGIN), 0, ONE, LOGIN).await, LoginLease::Ended);
    end(store, &family, LOGIN).await;
    assert_eq!(lease(store, &family, 0, OTHER, until + DAY).await, LoginLease::Ended);
}

pub(crate) async fn one_of_many_gets_the_lease(store: &dyn Store) {
    for round in 0..5 {
        let family = begun(store, &format!("user{round}")).await;
        let until = LOGIN + SECOND;
        let calls: Vec<_> = (0..16).map(|number| store.lease_login(family.id, 0, [number; 16], LOGIN, until)).collect();
        let mut granted = 0;
        for call in calls {
            match call.await.expect("the store works") {
                LoginLease::Granted => granted += 1,
                other => assert_eq!(other, LoginLease::Held { until }),
            }
        }
        assert_eq!(granted, 1);
    }
}

pub(crate) async fn an_interrupted_refresh_is_found(store: &dyn Store) {
    let interrupted = async |now| store.interrupted_logins(now, 100).await.expect("the store works");
    let (family, saved) = (claimed(store, "alice").await, claimed(store, "bob").await);
    let (given_up, ended) = (claimed(store, "carol").await, claimed(store, "dave").await);
    assert_eq!(interrupted(LOGIN + DAY).await, [], "without a lease");
    for family in [&family, &saved, &given_up, &ended] {
        assert_eq!(lease(store, family, 0, ONE, LOGIN).await, LoginLease::Granted);
    }
    save(store, &saved, tokens(1), LOGIN).await;
    let until = UnixTime::default();
    let gives_up = store.lease_login(given_up.id, 0, ONE, LOGIN, until).await.expect("the store works");
    assert_eq!(gives_up, LoginLease::Granted);
    assert_eq!(lease(store, &given_up, 0, OTHER, LOGIN).await, LoginLease::Granted, "at once");
    save(store, &given_up, tokens(1), LOGIN).await;
    store.lease_login(given_up.id, 1, OTHER, LOGIN, until).await.expect("the store works");
    end(store, &ended, LOGIN).await;
    let lapsed = LOGIN + SECOND * 10;
    assert_eq!(interrupted(lapsed - MILLISECOND).await, [], "while the holder works");
    let login = ProviderLogin { claimed: true, ..tokens(0) };
    assert_eq!(interrupted(lapsed).await, [(family.clone(), login)]);
    assert_eq!(lease(store, &family, 0, OTHER, lapsed).await, LoginLease::Granted);
    assert_eq!(interrupted(lapsed).await, [], "another one has it");
    store.revoke(Revoked::Everything { not_after: LOGIN }, lapsed.into()).await.expect("the store works");
    assert_eq!(interrupted(lapsed + MINUTE).await, []);
}

/// A refresh is no use of the session.
pub(crate) async fn refreshed_tokens_are_saved_with_their_claims(store: &dyn Store) {
    let before = claimed(store, "alice").await;
    lease(store, &before, 0, ONE, LOGIN).await;
    let now = LOGIN + MINUTE;
    let claims = json!({ "groups": ["é"] }).as_object().cloned().expect("an object");
    let next = ProviderLogin { due: now + MINUTE, root: 2, claimed: false, ..tokens(1) };
    let client = Some("2001:db8::9".parse().expect("an address"));
    let context = EventContext { client, ..now.into() };
    let scope = String::from("openid groups");
    let renewed = Renewed { scope: scope.clone(), claims: claims.clone(), due_before: DUE };
    let refreshed = RefreshedLogin { login: next.clone(), renewed: Some(renewed) };
    let saved = store.save_login(before.id, ONE, refreshed, context);
    assert_eq!(saved.await.expect("the store works"), SavedLogin::Saved);
    let family = Family { scope, claims, address: client, ..before.clone() };
    assert_eq!(found(store, before.id).await, Some((family.clone(), ProviderLogin { claimed: true, ..next.clone() })));

    assert_eq!(lease(store, &before, 1, OTHER, now).await, LoginLease::Granted, "the lease has ended");
    let changed = LoginLease::Changed(ProviderLogin { claimed: true, ..next });
    assert_eq!(lease(store, &before, 0, ONE, now).await, changed);
    // Without an address, the last one stays.
    assert_eq!(save(store, &family, tokens(2), LOGIN).await, SavedLogin::Saved);
    let (after, _) = found(store, before.id).await.expect("it is there");
    assert_eq!(
        (after.last_used_at, after.idle_expiry, after.address),
        (before.last_used_at, before.idle_expiry, client)
    );
}

pub(crate) async fn a_late_holder_keeps_its_tokens_unless_there_are_newer(store: &dyn Store) {
    let family = claimed(store, "alice").await;
    lease(store, &family, 0, ONE, LOGIN).await;
    let late = LOGIN + MINUTE;
    assert_eq!(lease(store, &family, 0, OTHER, late).await, LoginLease::Granted);
    assert_eq!(save(store, &family, tokens(1), late).await, SavedLogin::Saved);
    let until = late + SECOND * 10;
    assert_eq!(lease(store, &family, 1, ONE, late).await, LoginLease::Held { until }, "the other one is at it");

    let of_other = ProviderLogin { sealed: b"other".into(), ..tokens(1) };
    let scope = String::new();
    let claims = Default::default();
    let renewed = Some(Renewed { scope, claims, due_before: DUE });
    let refreshed = RefreshedLogin { login: of_other, renewed };
    let saved = store.save_login(family.id, OTHER, refreshed, late.into());
    assert_eq!(saved.await.expect("the store works"), SavedLogin::Newer);
    assert_eq!(save(store, &family, tokens(0), late).await, SavedLogin::Newer);
    assert_eq!(save(store, &family, tokens(1), late).await, SavedLogin::Saved, "a repeated call");
    let (after, login) = found(store, family.id).await.expect("it is there");
    assert_eq!((after.scope, login.sealed, login.version), (family.scope.clone(), tokens(1).sealed, 1));
    // The database has lost a version.
    assert_eq!(save(store, &family, tokens(5), late).await, SavedLogin::Saved);
}

/// The response of a provider is checked after its refresh token was saved.
pub(crate) async fn tokens_alone_change_nothing_else(store: &dyn Store) {
    let before = claimed(store, "alice").await;
    lease(store, &before, 0, ONE, LOGIN).await;
    let later = ProviderLogin { due: UnixTime::MAX, claimed: false, ..tokens(1) };
    assert_eq!(save_tokens(store, &before, later.clone(), LOGIN + SECOND).await, SavedLogin::Saved);
    assert_eq!(save_tokens(store, &before, later, LOGIN + SECOND).await, SavedLogin::Saved, "a repeated call");
    let kept = ProviderLogin { sealed: tokens(1).sealed, version: 1, claimed: true, ..tokens(0) };
    assert_eq!(found(store, before.id).await, Some((before.clone(), kept)));
    let until = LOGIN + SECOND * 10;
    assert_eq!(lease(store, &before, 1, OTHER, LOGIN).await, LoginLease::Held { until }, "the lease stays");
    assert_eq!(save_tokens(store, &before, tokens(0), LOGIN).await, SavedLogin::Newer);
    assert_eq!(save(store, &before, tokens(2), LOGIN + SECOND).await, SavedLogin::Saved);
    assert_eq!(lease(store, &before, 2, OTHER, LOGIN).await, LoginLease::Granted);
}

//! Logins at providers that become due before their time: the provider reported a change.

use bearward::store::{LoginLease, ProviderLogin, SavedLogin, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;

use super::provider_logins::{
    DUE, MINUTE, ONE, PROVIDER, SECOND, claimed, end, family, found, lease, save, save_due, tokens,
};
use crate::support::given::*;

async fn made_due(store: &dyn Store, of: Revoked, at: UnixTime) -> Vec<TokenId> {
    store.make_logins_due(of, at).await.expect("the store works")
}

/// The provider may have responded before the change that it reports.
pub(crate) async fn a_login_that_becomes_due_during_a_refresh_stays_due(store: &dyn Store) {
    let family = claimed(store, "alice").await;
    let (begun, reported) = (DUE + SECOND, DUE + SECOND * 2);
    assert_eq!(lease(store, &family, 0, ONE, begun).await, LoginLease::Granted);
    let session = || Revoked::Session { issuer: PROVIDER.into(), session: "session of alice".into() };
    assert_eq!(made_due(store, session(), reported).await, [family.id]);
    assert_eq!(made_due(store, session(), reported).await, [], "it is due then already");
    let next = ProviderLogin { due: reported + MINUTE, ..tokens(1) };
    assert_eq!(save(store, &family, next.clone(), reported).await, SavedLogin::Saved);
    let (_, login) = found(store, family.id).await.expect("it is there");
    assert_eq!((login.version, login.due), (1, reported));
    // The refresh after it has nothing to wait for.
    lease(store, &family, 1, ONE, reported).await;
    let next = ProviderLogin { version: 2, sealed: tokens(2).sealed, ..next };
    assert_eq!(save_due(store, &family, next.clone(), (reported, reported)).await, SavedLogin::Saved);
    let (_, login) = found(store, family.id).await.expect("it is there");
    assert_eq!(login.due, next.due);
}

pub(crate) async fn logins_of_a_session_or_a_user_are_made_due(store: &dyn Store) {
    let (alice, bob) = (claimed(store, "alice").await, claimed(store, "bob").await);
    let later = Family {
        origin: Some(FamilyOrigin { dated: LOGIN + SECOND, ..alice.origin.clone().expect("one") }),
        ..family("alice")
    };
    store.begin_login(later.clone(), tokens(0), None, ANY, LOGIN.into()).await.expect("the store works");
    // Without a refresh token, a login is never due.
    let other = Family { id: TokenId::random(), ..family("alice") };
    let without = ProviderLogin { due: UnixTime::MAX, ..tokens(0) };
    store.begin_login(other.clone(), without, None, ANY, LOGIN.into()).await.expect("the store works");
    let at = LOGIN + 2 * SECOND;
    let due = async |family: &Family| found(store, family.id).await.expect("it is there").1.due;

    let user = |subject: &str| Revoked::Subject { issuer: PROVIDER.into(), subject: subject.into(), not_after: LOGIN };
    assert_eq!(made_due(store, user("alice"), at).await, [alice.id]);
    assert_eq!((due(&alice).await, due(&bob).await), (at, LOGIN + MINUTE));
    assert_eq!((due(&later).await, due(&other).await), (LOGIN + MINUTE, UnixTime::MAX));
    assert_eq!(made_due(store, user("alice"), at).await, [], "it is due already");
    let elsewhere = Revoked::Session { issuer: "https://other.example".into(), session: "session of bob".into() };
    assert_eq!(made_due(store, elsewhere, at).await, []);
    let here = Revoked::Session { issuer: PROVIDER.into(), session: "session of bob".into() };
    assert_eq!(made_due(store, here, at).await, [bob.id]);
    let all = Revoked::Issuer { issuer: PROVIDER.into(), not_after: UnixTime::MAX };
    assert_eq!(made_due(store, all.clone(), at).await, [later.id]);

    // Another gateway refreshes it at the same time: its tokens are kept.
    assert_eq!(lease(store, &bob, 0, ONE, at).await, LoginLease::Granted);
    let next = ProviderLogin { due: at + MINUTE, ..tokens(1) };
    assert_eq!(save_due(store, &bob, next, (at, at)).await, SavedLogin::Saved);
    assert_eq!(due(&bob).await, at + MINUTE);
    end(store, &bob, at).await;
    assert_eq!(made_due(store, all, at).await, [], "an ended login is not refreshed");
}

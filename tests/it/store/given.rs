//! Families, tokens and times to test a store with.

use std::time::Duration;

use bearward::store::{DecideRotation, Store};
use bearward::tokens::family::refresh_token::{PresentedToken, Roots, current};
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::tokens::family::{Family, Lifetimes};
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use bearward::types::reject::Reason;
use bearward::types::secret::{self, Secret};

/// The gateway's own issuer, and the longest life of a token, with which stores are opened for the suite.
pub(crate) const ISSUER: &str = "https://gateway.example";
pub(crate) const LONGEST_LIFE: Duration = Duration::from_secs(1_000);

/// The longest life of a family.
pub(crate) const LONGEST_FAMILY: Duration = Duration::from_secs(30 * 86_400);

pub(crate) const GRACE: Duration = Duration::from_secs(10);
pub(crate) const AFTER_GRACE: Duration = Duration::from_millis(10_001);

/// The time of the first login. Half a second past a whole one, as access tokens only know whole ones.
pub(crate) const LOGIN: UnixTime = UnixTime::from_millis(1_700_000_000_500);

/// As many live families as a subject likes.
pub(crate) const ANY: usize = usize::MAX;

pub(crate) const LIFETIMES: Lifetimes = Lifetimes {
    access: Duration::from_secs(900),
    idle: Duration::from_secs(7 * 86_400),
    absolute: Duration::from_secs(30 * 86_400),
    grace: GRACE,
};

pub(crate) fn roots() -> Roots {
    Roots::new((1, Secret::new(vec![7; 32])), vec![])
}

/// A family as a login makes it.
pub(crate) fn login(subject: &str, now: UnixTime) -> Family {
    Family {
        id: TokenId::random(),
        subject: subject.into(),
        scope: "orders:read".into(),
        audience: vec!["https://api.example".into()],
        client_id: "app".into(),
        claims: Default::default(),
        label: "a phone".into(),
        salt: secret::random(),
        generation: 1,
        root: 1,
        rotated_at: now,
        confirmed: 0,
        created_at: now,
        last_used_at: now,
        address: None,
        idle: None,
        idle_expiry: now + LIFETIMES.idle,
        absolute_expiry: now + LIFETIMES.absolute,
        revoked: None,
    }
}

/// The family's refresh token of some generation, as a client presents it.
pub(crate) fn token(family: &Family, generation: u64) -> PresentedToken {
    let text = current(&Family { generation, ..family.clone() }, &roots()).expect("the root secret is known");
    PresentedToken::parse(&text).expect("what we mint is well formed")
}

/// The text of the family's present refresh token.
pub(crate) fn current_token(family: &Family) -> String {
    current(family, &roots()).expect("the root secret is known")
}

/// The decision that the gateway makes, at `now`.
pub(crate) fn at(now: UnixTime) -> DecideRotation {
    Box::new(move |family, watermark, presented| rotate(family, watermark, presented, &roots(), &LIFETIMES, now))
}

/// Presents the family's token of `generation` at `now`.
pub(crate) async fn refresh(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Rotation {
    store.rotate(token(family, generation), at(now), now.into()).await.expect("the store works")
}

/// Refreshes, and expects a new generation.
pub(crate) async fn rotated(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Family {
    match refresh(store, family, generation, now).await {
        Rotation::Rotated(next) => next,
        other => panic!("{other:?}"),
    }
}

/// Refreshes, and expects to be refused.
pub(crate) async fn refused(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Reason {
    match refresh(store, family, generation, now).await {
        Rotation::Rejected(reason) => reason,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn issued(store: &dyn Store, subject: &str, now: UnixTime) -> Family {
    store.issue(login(subject, now), ANY, now.into()).await.expect("the store works")
}

/// The family as the store has it.
pub(crate) async fn stored(store: &dyn Store, family: &Family) -> Family {
    store.family(family.id).await.expect("the store works").expect("the family is there")
}

//! Families, tokens and times for the tests of a store.

use std::time::Duration;

use bearward::store::{DecideRotation, Store, StoreOptions};
use bearward::tokens::family::refresh_token::{PresentedToken, Roots, current};
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::tokens::family::{Family, Lifetimes};
use bearward::types::clock::UnixTime;
use bearward::types::ids::TokenId;
use bearward::types::reject::Reason;
use bearward::types::secret::{self, Secret};

/// The gateway's issuer and the longest life of a token, as the suite opens its stores with them.
pub const ISSUER: &str = "https://gateway.example";
pub const LONGEST_LIFE: Duration = Duration::from_secs(1_000);

/// `timeouts.store`. Longer than any outage of a test.
pub const TIMEOUT: Duration = Duration::from_secs(3_600);

/// The longest life of a family.
pub const LONGEST_FAMILY: Duration = Duration::from_secs(30 * 86_400);

pub const GRACE: Duration = Duration::from_secs(10);
pub const AFTER_GRACE: Duration = Duration::from_millis(10_001);

/// The time of the first login. It has half a second, because access tokens only have whole seconds.
pub const LOGIN: UnixTime = UnixTime::from_millis(1_700_000_000_500);

/// No limit of live families.
pub const ANY: usize = usize::MAX;

pub const LIFETIMES: Lifetimes = Lifetimes {
    access: Duration::from_secs(900),
    idle: Duration::from_secs(7 * 86_400),
    absolute: Duration::from_secs(30 * 86_400),
    grace: GRACE,
};

/// The settings of a store of the suite.
pub fn settings() -> StoreOptions {
    StoreOptions {
        issuer: ISSUER.into(),
        longest_life: LONGEST_LIFE,
        longest_family: LONGEST_FAMILY,
        timeout: TIMEOUT,
        audit: 1_000,
    }
}

pub fn roots() -> Roots {
    Roots::new((1, Secret::new(vec![7; 32])), vec![])
}

/// A family as a login creates it.
pub fn login(subject: &str, now: UnixTime) -> Family {
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
        key_hash: None,
        key_rate: None,
        origin: None,
        grant: None,
        revoked: None,
    }
}

/// The family's refresh token of this generation, as a client presents it.
pub fn token(family: &Family, generation: u64) -> PresentedToken {
    let text = current(&Family { generation, ..family.clone() }, &roots()).expect("the root secret is known");
    PresentedToken::parse(&text).expect("minted tokens are well formed")
}

/// The text of the family's current refresh token.
pub fn current_token(family: &Family) -> String {
    current(family, &roots()).expect("the root secret is known")
}

/// The decision of the gateway at `now`.
pub fn at(now: UnixTime) -> DecideRotation {
    Box::new(move |family, watermark, presented, _| {
        rotate(family, watermark, presented, &roots(), &LIFETIMES, now.into())
    })
}

/// Presents the family's token of `generation` at `now`.
pub async fn refresh(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Rotation {
    store.rotate(token(family, generation), at(now), now.into()).await.expect("the store works")
}

/// Refreshes, and returns the new generation.
pub async fn rotated(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Family {
    match refresh(store, family, generation, now).await {
        Rotation::Rotated(next) => next,
        other => panic!("{other:?}"),
    }
}

/// Refreshes, and returns the reason of the rejection.
pub async fn rejection(store: &dyn Store, family: &Family, generation: u64, now: UnixTime) -> Reason {
    match refresh(store, family, generation, now).await {
        Rotation::Rejected(reason) => reason,
        other => panic!("{other:?}"),
    }
}

pub async fn issued(store: &dyn Store, subject: &str, now: UnixTime) -> Family {
    let family = store.issue(login(subject, now), ANY, now.into()).await.expect("the store works");
    family.expect("no watermark voids it")
}

/// The family as stored.
pub async fn stored(store: &dyn Store, family: &Family) -> Family {
    store.family(family.id).await.expect("the store works").expect("the family is there")
}

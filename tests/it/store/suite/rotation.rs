//! Every row of the rotation table, through the store.

use bearward::store::{RevokedBy, Store};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::rotation::Rotation;
use bearward::tokens::family::{Family, RevokeReason, RevokedAt};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;
use tokio::task::JoinSet;

use crate::support::given::*;

/// A new family in generation 3. `confirmed` is the newest generation that was seen in use.
async fn in_third_generation(store: &dyn Store, confirmed: u64) -> Family {
    let family = issued(store, "alice", LOGIN).await;
    rotated(store, &family, 1, LOGIN).await;
    rotated(store, &family, 2, LOGIN).await;
    store.confirm(vec![(family.id, confirmed)]).await.expect("the store works");
    stored(store, &family).await
}

pub(crate) async fn the_current_token_rotates(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let now = LOGIN + AFTER_GRACE;
    let next = rotated(store, &family, 1, now).await;
    assert_eq!((next.generation, next.rotated_at, next.last_used_at), (2, now, now));
    assert_eq!(next.idle_expiry, now + LIFETIMES.idle);
    assert_eq!(next.absolute_expiry, family.absolute_expiry);
    assert_eq!(stored(store, &family).await, next);
}

pub(crate) async fn the_parent_gets_its_child_again_within_the_grace(store: &dyn Store) {
    for confirmed in [2, 3] {
        let family = in_third_generation(store, confirmed).await;
        assert_eq!(refresh(store, &family, 2, LOGIN + GRACE).await, Rotation::Replayed(family.clone()));
        assert_eq!(stored(store, &family).await, family, "the grace period did not move");
    }
}

pub(crate) async fn a_lost_response_is_recovered_after_the_grace(store: &dyn Store) {
    let family = in_third_generation(store, 2).await;
    assert_eq!(refresh(store, &family, 2, LOGIN + AFTER_GRACE).await, Rotation::Recovered(family.clone()));
    assert_eq!(stored(store, &family).await, family);
}

pub(crate) async fn a_reuse_is_rejected_and_committed(store: &dyn Store) {
    let family = in_third_generation(store, 3).await;
    let now = LOGIN + AFTER_GRACE;
    let revoked = Some(RevokedAt { at: now, reason: RevokeReason::Reuse });
    let ended = Family { revoked, ..family.clone() };
    assert_eq!(refresh(store, &family, 2, now).await, Rotation::Reused(ended.clone()));
    assert_eq!(stored(store, &family).await, ended);

    let log = store.revocations_since(0).await.expect("the store works");
    assert_eq!(log.len(), 1);
    assert_eq!((&log[0].what, log[0].at, log[0].until), (&Revoked::Family(family.id), now, now + LONGEST_LIFE));
    assert_eq!(rejection(store, &family, 3, now).await, Reason::GrantRevoked, "the current token is revoked too");
}

pub(crate) async fn old_tokens_conflict_within_the_grace_and_are_reuse_after_it(store: &dyn Store) {
    let family = in_third_generation(store, 2).await;
    assert_eq!(rejection(store, &family, 1, LOGIN + GRACE).await, Reason::RefreshConflict);
    assert_eq!(stored(store, &family).await, family);
    assert!(matches!(refresh(store, &family, 1, LOGIN + AFTER_GRACE).await, Rotation::Reused(_)));
    assert!(stored(store, &family).await.revoked.is_some());
}

pub(crate) async fn a_token_ahead_of_the_store_is_rejected(store: &dyn Store) {
    let family = in_third_generation(store, 3).await;
    assert_eq!(rejection(store, &family, 4, LOGIN).await, Reason::GrantAhead);
    assert_eq!(stored(store, &family).await, family);
}

pub(crate) async fn forged_and_unknown_tokens_change_nothing(store: &dyn Store) {
    let family = in_third_generation(store, 3).await;
    let forged = Family { salt: [0; 32], ..family.clone() };
    let recorded = store.undelivered(100).await.expect("the store works").len();
    // A valid token of the first generation would be a reuse at this time.
    assert_eq!(rejection(store, &forged, 1, LOGIN + AFTER_GRACE).await, Reason::GrantForged);
    assert_eq!(rejection(store, &login("alice", LOGIN), 1, LOGIN).await, Reason::GrantUnknown);
    assert_eq!(stored(store, &family).await, family);
    assert!(store.revocations_since(0).await.expect("the store works").is_empty());
    assert_eq!(store.undelivered(100).await.expect("the store works").len(), recorded, "a stranger writes no event");
}

pub(crate) async fn revoked_and_expired_families_do_not_rotate(store: &dyn Store) {
    let expired = issued(store, "alice", LOGIN).await;
    assert_eq!(rejection(store, &expired, 1, expired.idle_expiry).await, Reason::GrantExpired);

    let logged_out = in_third_generation(store, 3).await;
    store.revoke_family(logged_out.id, RevokedBy::Owner("alice".into()), LOGIN.into()).await.expect("the store works");
    for generation in 1..=4 {
        assert_eq!(rejection(store, &logged_out, generation, LOGIN).await, Reason::GrantRevoked);
    }
    assert_eq!(rejection(store, &logged_out, 3, UnixTime::MAX).await, Reason::GrantRevoked);
}

/// Many tabs of a browser refresh at once. One of them rotates the token, and all get the same child.
pub(crate) async fn one_token_refreshed_64_times_at_once_rotates_once(store: &dyn Store) {
    let family = issued(store, "alice", LOGIN).await;
    let mut tabs: JoinSet<_> = (0..64).map(|_| store.rotate(token(&family, 1), at(LOGIN), LOGIN.into())).collect();
    let mut rotations = 0;
    let mut children = Vec::new();
    while let Some(answer) = tabs.join_next().await {
        match answer.expect("no panic").expect("the store works") {
            Rotation::Rotated(child) => {
                rotations += 1;
                children.push(current_token(&child));
            }
            Rotation::Replayed(child) => children.push(current_token(&child)),
            other => panic!("{other:?}"),
        }
    }
    children.dedup();
    assert_eq!((rotations, children.len()), (1, 1));
    assert_eq!(stored(store, &family).await.generation, 2);
}

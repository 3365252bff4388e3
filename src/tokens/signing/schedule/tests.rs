//! Both sides of every boundary in time.

use super::*;
use crate::tokens::jwt::Algorithm;

const T0: UnixTime = UnixTime::from_secs(1_700_000_000);
const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

const LIFETIMES: KeyLifetimes = KeyLifetimes {
    algorithm: Algorithm::ES256,
    lifetime: Duration::from_hours(24 * 90),
    ahead: DAY,
    access: Duration::from_mins(15),
    clock_skew: Duration::from_secs(5),
    idle: Duration::from_hours(24 * 7),
};

fn new_key(kid: &str, now: UnixTime) -> StoredKey {
    StoredKey {
        kid: kid.into(),
        algorithm: "ES256".into(),
        root: 1,
        sealed: vec![1],
        created_at: now,
        activated_at: None,
        retired_at: None,
        revoked_at: None,
        token_life: Duration::ZERO,
    }
}

/// [`advance`] with a new key.
fn advanced(keys: &[StoredKey], new: &str, now: UnixTime) -> Vec<StoredKey> {
    advance(keys.to_vec(), &LIFETIMES, Some(&new_key(new, now)), now)
}

fn states(keys: &[StoredKey]) -> Vec<String> {
    keys.iter().map(|key| format!("{} {}", key.kid, key.state().as_str())).collect()
}

fn uses(keys: &[StoredKey], now: UnixTime) -> Vec<Use> {
    keys.iter().map(|key| use_of(key, &LIFETIMES, now)).collect()
}

#[test]
fn the_first_key_signs_at_once() {
    assert!(needs_new_key(&[], &LIFETIMES, T0));
    assert!(advance(Vec::new(), &LIFETIMES, None, T0).is_empty(), "no key appears from nowhere");
    let keys = advanced(&[], "a", T0);
    assert_eq!(states(&keys), ["a active"]);
    assert_eq!((keys[0].activated_at, keys[0].token_life), (Some(T0), LIFETIMES.access));
    assert_eq!(next_rotation(&keys, &LIFETIMES), Some(T0 + LIFETIMES.lifetime));
    assert_eq!(advanced(&keys, "b", T0), keys, "nothing more is due");
}

#[test]
fn a_key_is_published_signs_and_retires_at_exact_times() {
    let first = advanced(&[], "a", T0);
    let publish = T0 + LIFETIMES.lifetime - LIFETIMES.ahead;
    assert_eq!(advanced(&first, "b", publish - MILLI), first);
    let both = advanced(&first, "b", publish);
    assert_eq!(states(&both), ["b pending", "a active"]);
    assert_eq!(uses(&both, publish), [Use::Verify, Use::Sign]);
    assert!(!needs_new_key(&both, &LIFETIMES, publish), "one pending key at a time");

    let sign = T0 + LIFETIMES.lifetime;
    assert_eq!(next_rotation(&both, &LIFETIMES), Some(sign));
    assert_eq!(advanced(&both, "c", sign - MILLI), both);
    let rotated = advanced(&both, "c", sign);
    assert_eq!(states(&rotated), ["b active", "a retired"]);
    assert_eq!((rotated[1].retired_at, rotated[0].activated_at), (Some(sign), Some(sign)));

    let last_token = sign + LIFETIMES.access + LIFETIMES.clock_skew + SLACK;
    assert_eq!(uses(&rotated, last_token - MILLI), [Use::Sign, Use::Verify]);
    assert_eq!(uses(&rotated, last_token), [Use::Sign, Use::RefreshOnly]);
    let deleted = last_token + LIFETIMES.idle;
    assert_eq!(uses(&rotated, deleted - MILLI), [Use::Sign, Use::RefreshOnly]);
    assert_eq!(states(&advanced(&rotated, "c", deleted - MILLI)), ["b active", "a retired"]);
    assert_eq!(states(&advanced(&rotated, "c", deleted)), ["b active"]);
}

/// Needs three keys: with two, a clean-up in the wrong order is not visible.
#[test]
fn of_three_keys_the_oldest_is_deleted_first() {
    let mut keys = advanced(&[], "a", T0);
    for (place, new) in ["b", "c"].into_iter().enumerate() {
        keys = rotate(keys, &LIFETIMES, &new_key(new, T0), true, T0 + DAY * (place as u32 + 1));
    }
    assert_eq!(states(&keys), ["c active", "b retired", "a retired"]);
    let deleted = T0 + DAY + LIFETIMES.access + LIFETIMES.clock_skew + SLACK + LIFETIMES.idle;
    assert_eq!(states(&advanced(&keys, "d", deleted)), ["c active", "b retired"]);
}

/// Also if the gateway was not running when the rotation was due.
#[test]
fn an_overdue_key_is_still_published_ahead() {
    let first = advanced(&[], "a", T0);
    let late = T0 + LIFETIMES.lifetime * 2;
    let both = advanced(&first, "b", late);
    assert_eq!(states(&both), ["b pending", "a active"]);
    assert_eq!(advanced(&both, "c", late + LIFETIMES.ahead - MILLI), both);
    assert_eq!(states(&advanced(&both, "c", late + LIFETIMES.ahead)), ["b active", "a retired"]);
}

#[test]
fn a_manual_rotation_is_published_ahead_unless_immediate() {
    let first = advanced(&[], "a", T0);
    let soon = T0 + DAY;
    let rotated = rotate(first.clone(), &LIFETIMES, &new_key("b", soon), false, soon);
    assert_eq!(states(&rotated), ["b pending", "a active"]);
    assert_eq!(
        rotate(rotated.clone(), &LIFETIMES, &new_key("c", soon), false, soon),
        rotated,
        "a second rotation changes nothing"
    );
    assert_eq!(advanced(&rotated, "c", soon + LIFETIMES.ahead - MILLI), rotated);
    assert_eq!(states(&advanced(&rotated, "c", soon + LIFETIMES.ahead)), ["b active", "a retired"]);
    let now = rotate(rotated, &LIFETIMES, &new_key("c", soon), true, soon);
    assert_eq!(states(&now), ["b active", "a retired"], "the published key signs first");
    assert_eq!(states(&rotate(first, &LIFETIMES, &new_key("b", soon), true, soon)), ["b active", "a retired"]);
}

#[test]
fn another_algorithm_signs_after_its_key_was_published() {
    let first = advanced(&[], "a", T0);
    let edwards = KeyLifetimes { algorithm: Algorithm::EdDSA, ..LIFETIMES };
    let new = StoredKey { algorithm: "EdDSA".into(), ..new_key("b", T0) };
    let both = advance(first, &edwards, Some(&new), T0);
    assert_eq!(states(&both), ["b pending", "a active"]);
    let back = advanced(&both, "c", T0);
    assert_eq!(states(&back), ["a active"], "an unused key is deleted without a trace");
    let later = T0 + LIFETIMES.ahead;
    assert_eq!(states(&advance(both, &edwards, None, later)), ["b active", "a retired"]);
}

#[test]
fn a_revoked_key_verifies_nothing_and_another_signs() {
    let pair = rotate(advanced(&[], "a", T0), &LIFETIMES, &new_key("b", T0), true, T0 + DAY);
    let now = T0 + DAY * 2;
    let revoked = revoke(pair.clone(), &LIFETIMES, Some(&new_key("c", now)), "b", false, now);
    assert_eq!(states(&revoked), ["c active", "b revoked", "a retired"]);
    assert_eq!(uses(&revoked, now)[1], Use::Nothing);
    assert!(revoked[1].sealed.is_empty(), "its private half is deleted");

    let still_refreshing = revoke(pair.clone(), &LIFETIMES, Some(&new_key("c", now)), "b", true, now);
    assert_eq!(uses(&still_refreshing, now)[1], Use::RefreshOnly);
    let revoked_twice = revoke(still_refreshing, &LIFETIMES, Some(&new_key("d", now)), "b", false, now + DAY);
    assert_eq!((revoked_twice[1].revoked_at, uses(&revoked_twice, now)[1]), (Some(now), Use::Nothing));

    // It is kept while a client could present one of its tokens.
    let deleted = now + LIFETIMES.access + LIFETIMES.clock_skew + SLACK + LIFETIMES.idle;
    assert!(states(&advanced(&revoked, "d", deleted - MILLI)).contains(&"b revoked".into()));
    assert!(!states(&advanced(&revoked, "d", deleted)).contains(&"b revoked".into()));

    let revoked_retired = revoke(pair.clone(), &LIFETIMES, Some(&new_key("c", now)), "a", false, now);
    assert_eq!(states(&revoked_retired), ["b active", "a revoked"], "the active key still signs");
    let published = rotate(pair, &LIFETIMES, &new_key("c", now), false, now);
    let replaced = revoke(published, &LIFETIMES, Some(&new_key("d", now)), "b", false, now);
    assert_eq!(states(&replaced), ["c active", "b revoked", "a retired"], "the published key takes over");
}

#[test]
fn a_lower_access_lifetime_does_not_shorten_earlier_tokens() {
    let long = KeyLifetimes { access: Duration::from_hours(1), ..LIFETIMES };
    let keys = advance(Vec::new(), &long, Some(&new_key("a", T0)), T0);
    let keys = rotate(keys, &LIFETIMES, &new_key("b", T0), true, T0 + DAY);
    assert_eq!(keys[1].token_life, Duration::from_hours(1));
    let ends = T0 + DAY + Duration::from_hours(1) + LIFETIMES.clock_skew + SLACK;
    assert_eq!(uses(&keys, ends - MILLI)[1], Use::Verify);
    assert_eq!(uses(&keys, ends)[1], Use::RefreshOnly);
}

#[test]
fn a_key_set_is_cached_for_less_than_key_ahead() {
    assert_eq!(LIFETIMES.max_age(), Duration::from_mins(10));
    assert_eq!(KeyLifetimes { ahead: Duration::from_mins(1), ..LIFETIMES }.max_age(), Duration::from_secs(30));
}

/// Neither step makes, activates or deletes a key.
#[test]
fn a_clock_that_is_set_by_an_hour_changes_no_key() {
    let pair = rotate(advanced(&[], "a", T0), &LIFETIMES, &new_key("b", T0), true, T0 + DAY);
    let published = rotate(pair, &LIFETIMES, &new_key("c", T0 + DAY), false, T0 + DAY);
    assert_eq!(states(&published), ["c pending", "b active", "a retired"]);
    for now in [T0 + DAY - Duration::from_hours(1), T0 + DAY + Duration::from_hours(1), T0 + DAY] {
        assert_eq!(advanced(&published, "d", now), published, "{now}");
        assert_eq!(uses(&published, now)[..2], [Use::Verify, Use::Sign], "{now}");
    }
}

/// The clock goes back an hour, and forward. The same key signs, no key is lost, and no new one is made too early.
#[test]
fn a_set_clock_changes_no_key_before_its_time() {
    let hour = Duration::from_hours(1);
    let first = advanced(&[], "a", T0);
    let pending_at = T0 + LIFETIMES.lifetime - LIFETIMES.ahead;
    let both = advanced(&first, "b", pending_at);
    let switched = advanced(&both, "c", pending_at + DAY);
    for (keys, at) in [(&first, T0), (&both, pending_at), (&switched, pending_at + DAY)] {
        for now in [at - hour, at + hour, at] {
            assert_eq!(advanced(keys, "new", now), *keys, "{now}");
            for key in keys {
                assert!(use_of(key, &LIFETIMES, now) >= use_of(key, &LIFETIMES, at + hour), "{} at {now}", key.kid);
            }
        }
    }
}

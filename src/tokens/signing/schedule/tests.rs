//! Both sides of every boundary.

use super::*;
use crate::tokens::jwt::Algorithm;

const T0: UnixTime = UnixTime::from_secs(1_700_000_000);
const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

const TERMS: KeyLifetimes = KeyLifetimes {
    algorithm: Algorithm::ES256,
    lifetime: Duration::from_hours(24 * 90),
    ahead: DAY,
    access: Duration::from_mins(15),
    clock_skew: Duration::from_secs(5),
    idle: Duration::from_hours(24 * 7),
};

fn made(kid: &str, now: UnixTime) -> StoredKey {
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

/// What `advance` makes of them when a key is at hand.
fn advanced(keys: &[StoredKey], new: &str, now: UnixTime) -> Vec<StoredKey> {
    advance(keys.to_vec(), &TERMS, Some(&made(new, now)), now)
}

fn shown(keys: &[StoredKey]) -> Vec<String> {
    keys.iter().map(|key| format!("{} {}", key.kid, key.state().as_str())).collect()
}

fn uses(keys: &[StoredKey], now: UnixTime) -> Vec<Use> {
    keys.iter().map(|key| use_of(key, &TERMS, now)).collect()
}

#[test]
fn the_first_key_signs_at_once() {
    assert!(wants_key(&[], &TERMS, T0));
    assert!(advance(Vec::new(), &TERMS, None, T0).is_empty(), "nothing is made up");
    let keys = advanced(&[], "a", T0);
    assert_eq!(shown(&keys), ["a active"]);
    assert_eq!((keys[0].activated_at, keys[0].token_life), (Some(T0), TERMS.access));
    assert_eq!(next_rotation(&keys, &TERMS), Some(T0 + TERMS.lifetime));
    assert_eq!(advanced(&keys, "b", T0), keys, "and nothing more is due");
}

#[test]
fn a_key_is_published_ahead_signs_and_retires_to_the_millisecond() {
    let first = advanced(&[], "a", T0);
    let publish = T0 + TERMS.lifetime - TERMS.ahead;
    assert_eq!(advanced(&first, "b", publish - MILLI), first);
    let both = advanced(&first, "b", publish);
    assert_eq!(shown(&both), ["b pending", "a active"]);
    assert_eq!(uses(&both, publish), [Use::Verify, Use::Sign]);
    assert!(!wants_key(&both, &TERMS, publish), "one at a time");

    let sign = T0 + TERMS.lifetime;
    assert_eq!(next_rotation(&both, &TERMS), Some(sign));
    assert_eq!(advanced(&both, "c", sign - MILLI), both);
    let rotated = advanced(&both, "c", sign);
    assert_eq!(shown(&rotated), ["b active", "a retired"]);
    assert_eq!((rotated[1].retired_at, rotated[0].activated_at), (Some(sign), Some(sign)));

    let last_token = sign + TERMS.access + TERMS.clock_skew + SLACK;
    assert_eq!(uses(&rotated, last_token - MILLI), [Use::Sign, Use::Verify]);
    assert_eq!(uses(&rotated, last_token), [Use::Sign, Use::RefreshOnly]);
    let forgotten = last_token + TERMS.idle;
    assert_eq!(uses(&rotated, forgotten - MILLI), [Use::Sign, Use::RefreshOnly]);
    assert_eq!(shown(&advanced(&rotated, "c", forgotten - MILLI)), ["b active", "a retired"]);
    assert_eq!(shown(&advanced(&rotated, "c", forgotten)), ["b active"]);
}

/// Three keys, as a clean-up that begins at the wrong end shows itself only then.
#[test]
fn of_three_keys_the_oldest_goes_first() {
    let mut keys = advanced(&[], "a", T0);
    for (place, new) in ["b", "c"].into_iter().enumerate() {
        keys = rotate(keys, &TERMS, &made(new, T0), true, T0 + DAY * (place as u32 + 1));
    }
    assert_eq!(shown(&keys), ["c active", "b retired", "a retired"]);
    let forgotten = T0 + DAY + TERMS.access + TERMS.clock_skew + SLACK + TERMS.idle;
    assert_eq!(shown(&advanced(&keys, "d", forgotten)), ["c active", "b retired"]);
}

/// A gateway that was off when a rotation was due still publishes ahead.
#[test]
fn whoever_comes_late_does_not_hurry() {
    let first = advanced(&[], "a", T0);
    let late = T0 + TERMS.lifetime * 2;
    let both = advanced(&first, "b", late);
    assert_eq!(shown(&both), ["b pending", "a active"]);
    assert_eq!(advanced(&both, "c", late + TERMS.ahead - MILLI), both);
    assert_eq!(shown(&advanced(&both, "c", late + TERMS.ahead)), ["b active", "a retired"]);
}

#[test]
fn a_rotation_by_hand_is_published_ahead_unless_it_is_for_now() {
    let first = advanced(&[], "a", T0);
    let soon = T0 + DAY;
    let asked = rotate(first.clone(), &TERMS, &made("b", soon), false, soon);
    assert_eq!(shown(&asked), ["b pending", "a active"]);
    assert_eq!(rotate(asked.clone(), &TERMS, &made("c", soon), false, soon), asked, "asking again changes nothing");
    assert_eq!(advanced(&asked, "c", soon + TERMS.ahead - MILLI), asked);
    assert_eq!(shown(&advanced(&asked, "c", soon + TERMS.ahead)), ["b active", "a retired"]);
    let now = rotate(asked, &TERMS, &made("c", soon), true, soon);
    assert_eq!(shown(&now), ["b active", "a retired"], "what is published already comes first");
    assert_eq!(shown(&rotate(first, &TERMS, &made("b", soon), true, soon)), ["b active", "a retired"]);
}

#[test]
fn another_algorithm_takes_over_after_it_was_published() {
    let first = advanced(&[], "a", T0);
    let edwards = KeyLifetimes { algorithm: Algorithm::EdDSA, ..TERMS };
    let new = StoredKey { algorithm: "EdDSA".into(), ..made("b", T0) };
    let both = advance(first, &edwards, Some(&new), T0);
    assert_eq!(shown(&both), ["b pending", "a active"]);
    let back = advanced(&both, "c", T0);
    assert_eq!(shown(&back), ["a active"], "and goes as it came, if it never signed");
    let later = T0 + TERMS.ahead;
    assert_eq!(shown(&advance(both, &edwards, None, later)), ["b active", "a retired"]);
}

#[test]
fn a_revoked_key_is_good_for_nothing_and_another_signs() {
    let pair = rotate(advanced(&[], "a", T0), &TERMS, &made("b", T0), true, T0 + DAY);
    let now = T0 + DAY * 2;
    let revoked = revoke(pair.clone(), &TERMS, &made("c", now), ("b", false), now);
    assert_eq!(shown(&revoked), ["c active", "b revoked", "a retired"]);
    assert_eq!(uses(&revoked, now)[1], Use::Nothing);
    assert!(revoked[1].sealed.is_empty(), "its private half is gone");

    let merciful = revoke(pair.clone(), &TERMS, &made("c", now), ("b", true), now);
    assert_eq!(uses(&merciful, now)[1], Use::RefreshOnly);
    let regretted = revoke(merciful, &TERMS, &made("d", now), ("b", false), now + DAY);
    assert_eq!((regretted[1].revoked_at, uses(&regretted, now)[1]), (Some(now), Use::Nothing));

    // It is remembered as long as a token of it could be shown.
    let forgotten = now + TERMS.access + TERMS.clock_skew + SLACK + TERMS.idle;
    assert!(shown(&advanced(&revoked, "d", forgotten - MILLI)).contains(&"b revoked".into()));
    assert!(!shown(&advanced(&revoked, "d", forgotten)).contains(&"b revoked".into()));

    let of_the_old = revoke(pair.clone(), &TERMS, &made("c", now), ("a", false), now);
    assert_eq!(shown(&of_the_old), ["b active", "a revoked"], "the one that signs is another");
    let published = rotate(pair, &TERMS, &made("c", now), false, now);
    let replaced = revoke(published, &TERMS, &made("d", now), ("b", false), now);
    assert_eq!(shown(&replaced), ["c active", "b revoked", "a retired"], "the one that is known already takes over");
}

#[test]
fn tokens_from_before_a_lower_access_lifetime_live_to_their_end() {
    let long = KeyLifetimes { access: Duration::from_hours(1), ..TERMS };
    let keys = advance(Vec::new(), &long, Some(&made("a", T0)), T0);
    let keys = rotate(keys, &TERMS, &made("b", T0), true, T0 + DAY);
    assert_eq!(keys[1].token_life, Duration::from_hours(1));
    let ends = T0 + DAY + Duration::from_hours(1) + TERMS.clock_skew + SLACK;
    assert_eq!(uses(&keys, ends - MILLI)[1], Use::Verify);
    assert_eq!(uses(&keys, ends)[1], Use::RefreshOnly);
}

#[test]
fn what_is_published_may_be_kept_for_less_than_the_time_ahead() {
    assert_eq!(TERMS.max_age(), Duration::from_mins(10));
    assert_eq!(KeyLifetimes { ahead: Duration::from_mins(1), ..TERMS }.max_age(), Duration::from_secs(30));
}

//! The key in `tokens.signing_key_file` among the keys of the store. No I/O.
//!
//! The store has the public half of the key, so that its tokens stay valid when another key replaces it, after a
//! restart, and at every gateway that shares the store. These gateways see a new file at different times. So each one
//! signs with the key of its own file, and keeps that key from running out in the store.

use std::time::Duration;

use super::key_lifetimes::KeyLifetimes;
use super::schedule::{self, Use, use_of};
use super::stored_key::{KeyState, StoredKey};
use crate::types::clock::UnixTime;

/// What a gateway must change in the store, because it signs with this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// The key must become the active one.
    Adopt,
    /// Another gateway has made another key the active one: this one must not run out.
    Keep,
    /// An operator has revoked the key. Its tokens are rejected.
    Revoked,
}

/// `is_new`: the gateway has not signed with the key yet.
pub fn due(kid: &str, is_new: bool, keys: &[StoredKey], now: UnixTime) -> Due {
    let Some(key) = keys.iter().find(|key| key.kid == kid) else { return Due::Adopt };
    match key.state() {
        KeyState::Revoked => Due::Revoked,
        KeyState::Active => Due::Nothing,
        KeyState::Pending => Due::Adopt,
        KeyState::Retired if is_new || schedule::active(keys).is_none() => Due::Adopt,
        // Half of the time for which it would still verify.
        KeyState::Retired if key.retired_at.is_none_or(|at| now >= at + key.token_life / 2) => Due::Keep,
        KeyState::Retired => Due::Nothing,
    }
}

/// Makes `own` the active key, as a rotation without delay. `own` may be in the store already.
pub fn adopt(mut keys: Vec<StoredKey>, lifetimes: &KeyLifetimes, own: &StoredKey, now: UnixTime) -> Vec<StoredKey> {
    // A pending key has signed nothing.
    keys.retain(|key| !key.is(KeyState::Pending) || key.kid == own.kid);
    if !keys.iter().any(|key| key.kid == own.kid) {
        keys.insert(0, own.clone());
    }
    let is_due =
        keys.iter().any(|key| key.kid == own.kid && matches!(key.state(), KeyState::Pending | KeyState::Retired));
    if is_due {
        keys.iter_mut().filter(|key| key.kid == own.kid).for_each(|key| key.retired_at = None);
        schedule::activate(&mut keys, &own.kid, now);
    }
    advance(keys, lifetimes, now)
}

/// Lets a retired key verify as long as if it were retired now.
pub fn keep(mut keys: Vec<StoredKey>, lifetimes: &KeyLifetimes, kid: &str, now: UnixTime) -> Vec<StoredKey> {
    for key in keys.iter_mut().filter(|key| key.kid == kid && key.is(KeyState::Retired)) {
        key.retired_at = Some(now);
        key.token_life = key.token_life.max(lifetimes.access);
    }
    advance(keys, lifetimes, now)
}

/// Deletes the keys that are not needed any more. The operator makes new keys, and not the gateway.
pub fn advance(keys: Vec<StoredKey>, lifetimes: &KeyLifetimes, now: UnixTime) -> Vec<StoredKey> {
    schedule::advance(keys, &KeyLifetimes { lifetime: Duration::MAX, ..*lifetimes }, None, now)
}

/// What a key is used for, at a gateway that signs with `own`.
pub fn use_beside(own: &str, key: &StoredKey, lifetimes: &KeyLifetimes, now: UnixTime) -> Use {
    match (use_of(key, lifetimes, now), key.kid == own) {
        (Use::Sign | Use::Verify, true) => Use::Sign,
        (Use::Sign, false) => Use::Verify,
        (other, _) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::jwt::Algorithm;

    const T0: UnixTime = UnixTime::from_secs(1_700_000_000);
    const HOUR: Duration = Duration::from_hours(1);
    const LIFETIMES: KeyLifetimes = KeyLifetimes {
        algorithm: Algorithm::ES256,
        lifetime: HOUR,
        ahead: HOUR,
        access: HOUR,
        clock_skew: Duration::ZERO,
        idle: HOUR,
    };

    fn key(kid: &str, at: UnixTime) -> StoredKey {
        StoredKey {
            kid: kid.into(),
            algorithm: "ES256".into(),
            root: 1,
            sealed: b"x".into(),
            created_at: at,
            activated_at: None,
            retired_at: None,
            revoked_at: None,
            token_life: Duration::ZERO,
        }
    }

    fn states(keys: &[StoredKey]) -> Vec<(&str, KeyState)> {
        keys.iter().map(|key| (&*key.kid, key.state())).collect()
    }

    #[test]
    fn a_new_file_replaces_the_active_key_and_an_older_file_takes_it_back() {
        let first = adopt(vec![key("pending", T0)], &LIFETIMES, &key("a", T0), T0);
        assert_eq!(states(&first), [("a", KeyState::Active)], "the pending key has signed nothing");
        assert_eq!(adopt(first.clone(), &LIFETIMES, &key("a", T0 + HOUR), T0 + HOUR), first, "it is in force");
        let second = adopt(first, &LIFETIMES, &key("b", T0 + HOUR), T0 + HOUR);
        assert_eq!(states(&second), [("b", KeyState::Active), ("a", KeyState::Retired)]);
        assert_eq!(second[1].token_life, HOUR, "its tokens stay valid for that time");
        let back = adopt(second, &LIFETIMES, &key("a", T0 + HOUR), T0 + HOUR + HOUR);
        assert_eq!(states(&back), [("b", KeyState::Retired), ("a", KeyState::Active)]);
        // Long after `key_lifetime`, the gateway makes no key.
        let later = advance(back, &LIFETIMES, T0 + HOUR * 1_000);
        assert_eq!(states(&later), [("a", KeyState::Active)]);
    }

    #[test]
    fn a_gateway_with_an_older_file_keeps_its_key() {
        let keys = adopt(adopt(Vec::new(), &LIFETIMES, &key("a", T0), T0), &LIFETIMES, &key("b", T0), T0);
        let due_of = |kid, keys: &[StoredKey], at| due(kid, false, keys, at);
        assert_eq!(due_of("b", &keys, T0), Due::Nothing);
        assert_eq!(due("a", true, &keys, T0), Due::Adopt, "its operator went back to it");
        assert_eq!(due_of("a", &keys, T0), Due::Nothing);
        assert_eq!(due_of("a", &keys, T0 + HOUR / 2), Due::Keep);
        let kept = keep(keys.clone(), &LIFETIMES, "a", T0 + HOUR / 2);
        assert_eq!(due_of("a", &kept, T0 + HOUR / 2), Due::Nothing);
        assert_eq!(use_beside("a", &kept[1], &LIFETIMES, T0 + HOUR + HOUR / 4), Use::Sign);
        assert_eq!(use_beside("a", &kept[0], &LIFETIMES, T0), Use::Verify);
        assert_eq!(use_beside("b", &keys[1], &LIFETIMES, T0 + HOUR + HOUR / 4), Use::RefreshOnly);
    }

    #[test]
    fn a_revoked_key_does_not_come_back() {
        let keys = adopt(Vec::new(), &LIFETIMES, &key("a", T0), T0);
        let revoked = schedule::revoke(keys, &LIFETIMES, None, "a", true, T0);
        assert_eq!(due("a", true, &revoked, T0), Due::Revoked);
        assert_eq!(adopt(revoked.clone(), &LIFETIMES, &key("a", T0), T0), revoked);
        assert_eq!(due("b", false, &revoked, T0), Due::Adopt);
        let alone = adopt(revoked, &LIFETIMES, &key("b", T0), T0);
        let both_ended = schedule::revoke(adopt(alone, &LIFETIMES, &key("c", T0), T0), &LIFETIMES, None, "c", true, T0);
        assert_eq!(due("b", false, &both_ended, T0), Due::Adopt, "no other key is active");
    }
}

//! The use of each key at a given time, and its next step. No I/O.
//!
//! | state of the key | is published | verifies everywhere | verifies at refreshes |
//! |---|---|---|---|
//! | pending, for `ahead` | yes | yes | yes |
//! | active, for `lifetime` | yes | yes | yes |
//! | retired, until its last access token expires | yes | yes | yes |
//! | retired, for `refresh_idle` more | no | no | yes |
//! | revoked | no | no | only if the operator allowed it |
//!
//! A pending key verifies already, because another gateway with the same store may activate it a moment earlier.

use std::time::Duration;

use super::key_lifetimes::KeyLifetimes;
use super::stored_key::{KeyState, StoredKey};
use crate::types::clock::UnixTime;

/// How long a retired key may still sign: requests in flight keep the key that they began with.
const SLACK: Duration = Duration::from_mins(1);

/// Maximum number of keys for a manual rotation. A token without a kid makes the gateway look through all keys.
pub const MAX_KEYS: usize = 64;

/// What a key is used for at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Its tokens are rejected as signed by a revoked key.
    Nothing,
    /// Verifies only at refreshes.
    RefreshOnly,
    /// Published, and verifies everywhere.
    Verify,
    Sign,
}

pub fn use_of(key: &StoredKey, lifetimes: &KeyLifetimes, now: UnixTime) -> Use {
    match key.state() {
        KeyState::Active => Use::Sign,
        KeyState::Pending => Use::Verify,
        KeyState::Retired if now < last_token_ends(key, lifetimes) => Use::Verify,
        KeyState::Retired => Use::RefreshOnly,
        KeyState::Revoked if key.sealed.is_empty() => Use::Nothing,
        KeyState::Revoked => Use::RefreshOnly,
    }
}

/// From here on no access token of this key is valid.
fn last_token_ends(key: &StoredKey, lifetimes: &KeyLifetimes) -> UnixTime {
    let Some(ended) = key.revoked_at.into_iter().chain(key.retired_at).min() else { return UnixTime::MAX };
    ended + key.token_life + lifetimes.clock_skew + SLACK
}

/// From here on the key is not needed, not even for a refresh.
fn deleted_at(key: &StoredKey, lifetimes: &KeyLifetimes) -> UnixTime {
    last_token_ends(key, lifetimes) + lifetimes.idle
}

/// When the next key begins to sign.
pub fn next_rotation(keys: &[StoredKey], lifetimes: &KeyLifetimes) -> Option<UnixTime> {
    match pending(keys, lifetimes) {
        Some(next) => Some(next.created_at + lifetimes.ahead),
        None => active(keys).and_then(|key| key.activated_at).map(|since| since + lifetimes.lifetime),
    }
}

/// When the state of this key changes by itself. `None` if that depends on no time.
pub fn next_step(key: &StoredKey, keys: &[StoredKey], lifetimes: &KeyLifetimes, now: UnixTime) -> Option<UnixTime> {
    match (key.state(), use_of(key, lifetimes, now)) {
        (KeyState::Pending | KeyState::Active, _) => next_rotation(keys, lifetimes),
        (KeyState::Retired, Use::Verify) => Some(last_token_ends(key, lifetimes)),
        (KeyState::Retired | KeyState::Revoked, _) => Some(deleted_at(key, lifetimes)),
    }
}

pub fn active(keys: &[StoredKey]) -> Option<&StoredKey> {
    // There is at most one. If a store ever has two, the one that was activated last signs.
    keys.iter().filter(|key| key.is(KeyState::Active)).max_by_key(|key| key.activated_at)
}

/// The key that signs next.
pub fn pending<'k>(keys: &'k [StoredKey], lifetimes: &KeyLifetimes) -> Option<&'k StoredKey> {
    keys.iter()
        .filter(|key| key.is(KeyState::Pending) && key.algorithm == lifetimes.algorithm_name())
        .min_by_key(|key| key.created_at)
}

/// Returns true if a new key must be created. That takes time, so the caller creates it before it calls [`advance`].
pub fn needs_new_key(keys: &[StoredKey], lifetimes: &KeyLifetimes, now: UnixTime) -> bool {
    if pending(keys, lifetimes).is_some() {
        return false;
    }
    let Some((signing, since)) = active(keys).and_then(|key| Some((key, key.activated_at?))) else { return true };
    signing.algorithm != lifetimes.algorithm_name() || now >= since + lifetimes.lifetime - lifetimes.ahead
}

/// Applies everything that is due to `keys`, which are ordered newest first. `new_key` is not in the store yet; it is
/// used only if [`needs_new_key`].
pub fn advance(
    mut keys: Vec<StoredKey>,
    lifetimes: &KeyLifetimes,
    new_key: Option<&StoredKey>,
    now: UnixTime,
) -> Vec<StoredKey> {
    // A pending key of an algorithm that is no longer configured never signed anything.
    keys.retain(|key| !key.is(KeyState::Pending) || key.algorithm == lifetimes.algorithm_name());
    if needs_new_key(&keys, lifetimes, now) {
        keys.splice(0..0, new_key.cloned());
    }
    let due = match pending(&keys, lifetimes) {
        // Without an active key there is no reason to wait.
        Some(next) if active(&keys).is_none() || now >= next.created_at + lifetimes.ahead => Some(next.kid.clone()),
        _ => None,
    };
    if let Some(kid) = due {
        activate(&mut keys, &kid, now);
    }
    for key in keys.iter_mut().filter(|key| key.is(KeyState::Active)) {
        key.token_life = key.token_life.max(lifetimes.access);
    }
    keys.retain(|key| {
        !matches!(key.state(), KeyState::Retired | KeyState::Revoked) || now < deleted_at(key, lifetimes)
    });
    keys
}

/// Publishes the next key now, whatever the age of the active key. If `immediately` is true, the next key also signs
/// now.
pub fn rotate(
    mut keys: Vec<StoredKey>,
    lifetimes: &KeyLifetimes,
    new_key: &StoredKey,
    immediately: bool,
    now: UnixTime,
) -> Vec<StoredKey> {
    if pending(&keys, lifetimes).is_none() {
        keys.insert(0, new_key.clone());
    }
    if immediately && let Some(kid) = pending(&keys, lifetimes).map(|next| next.kid.clone()) {
        activate(&mut keys, &kid, now);
    }
    advance(keys, lifetimes, Some(new_key), now)
}

/// Revokes this key. If it was active, the next key signs, if there is one. If `may_refresh` is true, its tokens are
/// still accepted at refreshes; otherwise its private half is deleted.
pub fn revoke(
    mut keys: Vec<StoredKey>,
    lifetimes: &KeyLifetimes,
    new_key: Option<&StoredKey>,
    kid: &str,
    may_refresh: bool,
    now: UnixTime,
) -> Vec<StoredKey> {
    for key in keys.iter_mut().filter(|key| key.kid == kid) {
        key.revoked_at = key.revoked_at.or(Some(now));
        if !may_refresh {
            key.sealed = Vec::new();
        }
    }
    advance(keys, lifetimes, new_key, now)
}

/// Lets this key sign, and no other.
pub(super) fn activate(keys: &mut [StoredKey], kid: &str, now: UnixTime) {
    for key in keys {
        if key.kid == kid {
            key.activated_at = Some(now);
        } else if key.is(KeyState::Active) {
            key.retired_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests;

//! Which key does what at a moment, and what becomes of them next. Pure.
//!
//! | a key | is published | verifies everywhere | verifies at refreshes |
//! |---|---|---|---|
//! | pending, for `ahead` | yes | yes | yes |
//! | active, for `lifetime` | yes | yes | yes |
//! | retired, for the life of its last access token | yes | yes | yes |
//! | retired, for `refresh_idle` more | no | no | yes |
//! | revoked | no | no | only if the operator said so |
//!
//! A pending key verifies already: whoever shares the store may be a moment ahead.

use std::time::Duration;

use super::{KeyLifetimes, KeyState, StoredKey};
use crate::types::clock::UnixTime;

/// Between the moment at which a key retires and the last token that it signs: requests under way end as they began.
const SLACK: Duration = Duration::from_mins(1);

/// More keys than these are not kept by hand-made rotations: each is looked through for a token that names none.
pub const MOST_KEYS: usize = 64;

/// What a key is good for at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Tokens that it signed are refused by name.
    Nothing,
    RefreshOnly,
    /// Published, and verifies everywhere.
    Verify,
    Sign,
}

/// What `key` is good for. The active one signs.
pub fn use_of(key: &StoredKey, terms: &KeyLifetimes, now: UnixTime) -> Use {
    match key.state() {
        KeyState::Active => Use::Sign,
        KeyState::Pending => Use::Verify,
        KeyState::Retired if now < last_token_ends(key, terms) => Use::Verify,
        KeyState::Retired => Use::RefreshOnly,
        KeyState::Revoked if key.sealed.is_empty() => Use::Nothing,
        KeyState::Revoked => Use::RefreshOnly,
    }
}

/// No access token that this key signed is good after that, whatever it says.
fn last_token_ends(key: &StoredKey, terms: &KeyLifetimes) -> UnixTime {
    let Some(ended) = key.revoked_at.into_iter().chain(key.retired_at).min() else { return UnixTime::MAX };
    ended + key.token_life + terms.clock_skew + SLACK
}

/// From here on nobody asks for it any more, not even to refresh.
fn forgotten_at(key: &StoredKey, terms: &KeyLifetimes) -> UnixTime {
    last_token_ends(key, terms) + terms.idle
}

/// When the next key begins to sign, as things stand.
pub fn next_rotation(keys: &[StoredKey], terms: &KeyLifetimes) -> Option<UnixTime> {
    match pending(keys, terms) {
        Some(next) => Some(next.created_at + terms.ahead),
        None => active(keys).and_then(|key| key.activated_at).map(|since| since + terms.lifetime),
    }
}

pub fn active(keys: &[StoredKey]) -> Option<&StoredKey> {
    // There is one at most. Should a store ever hold two, the one that began last signs.
    keys.iter().filter(|key| key.is(KeyState::Active)).max_by_key(|key| key.activated_at)
}

/// The key that signs next.
pub fn pending<'k>(keys: &'k [StoredKey], terms: &KeyLifetimes) -> Option<&'k StoredKey> {
    keys.iter()
        .filter(|key| key.is(KeyState::Pending) && key.algorithm == terms.algorithm_name())
        .min_by_key(|key| key.created_at)
}

/// Is a new key due? Making one takes time, so it is made before the decision that uses it.
pub fn wants_key(keys: &[StoredKey], terms: &KeyLifetimes, now: UnixTime) -> bool {
    if pending(keys, terms).is_some() {
        return false;
    }
    let Some((signing, since)) = active(keys).and_then(|key| Some((key, key.activated_at?))) else { return true };
    signing.algorithm != terms.algorithm_name() || now >= since + terms.lifetime - terms.ahead
}

/// Everything that is due, done, in keys that stand newest first. `made` is a new key, not yet in the store; it is used only
/// if [`wants_key`].
pub fn advance(
    mut keys: Vec<StoredKey>,
    terms: &KeyLifetimes,
    made: Option<&StoredKey>,
    now: UnixTime,
) -> Vec<StoredKey> {
    // One that nobody was told to sign with, of an algorithm that is no longer wanted: nothing is lost with it.
    keys.retain(|key| !key.is(KeyState::Pending) || key.algorithm == terms.algorithm_name());
    if wants_key(&keys, terms, now) {
        keys.splice(0..0, made.cloned());
    }
    let due = match pending(&keys, terms) {
        // Without a key that signs there is nobody to be kept waiting.
        Some(next) if active(&keys).is_none() || now >= next.created_at + terms.ahead => Some(next.kid.clone()),
        _ => None,
    };
    if let Some(kid) = due {
        activate(&mut keys, &kid, now);
    }
    for key in keys.iter_mut().filter(|key| key.is(KeyState::Active)) {
        key.token_life = key.token_life.max(terms.access);
    }
    keys.retain(|key| !matches!(key.state(), KeyState::Retired | KeyState::Revoked) || now < forgotten_at(key, terms));
    keys
}

/// The next key is made ready now, whatever the age of the one that signs; `at_once`: it signs now.
pub fn rotate(
    mut keys: Vec<StoredKey>,
    terms: &KeyLifetimes,
    made: &StoredKey,
    at_once: bool,
    now: UnixTime,
) -> Vec<StoredKey> {
    if pending(&keys, terms).is_none() {
        keys.insert(0, made.clone());
    }
    if let Some(kid) = pending(&keys, terms).filter(|_| at_once).map(|next| next.kid.clone()) {
        activate(&mut keys, &kid, now);
    }
    advance(keys, terms, Some(made), now)
}

/// Ends this key now; another signs, if it did. Its private half is wiped unless its tokens may still refresh.
pub fn revoke(
    mut keys: Vec<StoredKey>,
    terms: &KeyLifetimes,
    made: &StoredKey,
    (kid, may_refresh): (&str, bool),
    now: UnixTime,
) -> Vec<StoredKey> {
    for key in keys.iter_mut().filter(|key| key.kid == kid) {
        key.revoked_at = key.revoked_at.or(Some(now));
        if !may_refresh {
            key.sealed = Vec::new();
        }
    }
    advance(keys, terms, Some(made), now)
}

fn activate(keys: &mut [StoredKey], kid: &str, now: UnixTime) {
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

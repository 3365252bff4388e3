//! The gateway's own signing keys, as the store keeps them, and when each of them does what.
//!
//! A key is **pending** (published, so that everybody who will have to know it does), then **active** (it signs), then
//! **retired** (it signs no more, but what it signed lives on), and then it is deleted. A retired key verifies while an
//! access token of it may live, and after that at refreshes alone: an expired token is what people refresh with. An
//! operator can end a key before its time: **revoked**.
//!
//! [`schedule`] decides, from the keys, the terms and `now`; [`seal`] keeps private keys from whoever reads the store.

pub mod schedule;
pub mod seal;

use std::time::Duration;

use crate::tokens::jwt::{Algorithm, algorithm_name};
use crate::types::clock::UnixTime;

/// A signing key as it lies in the store. Its state is what has happened to it: the latest of these times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// RFC 7638 thumbprint.
    pub kid: String,
    pub algorithm: String,
    /// The number of the root secret that it is sealed under.
    pub root: u8,
    /// The private key in PKCS#8 PEM, as [`seal::seal`] leaves it. Empty for a key that was revoked for good.
    pub sealed: Vec<u8>,
    /// It is published from here on.
    pub created_at: UnixTime,
    /// It signs from here on.
    pub activated_at: Option<UnixTime>,
    /// It signs no more.
    pub retired_at: Option<UnixTime>,
    /// Nothing that it signed is believed any more.
    pub revoked_at: Option<UnixTime>,
    /// The longest life that was configured for access tokens while it signed: when that is lowered, the tokens from
    /// before live on.
    pub token_life: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Pending,
    Active,
    Retired,
    Revoked,
}

impl KeyState {
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyState::Pending => "pending",
            KeyState::Active => "active",
            KeyState::Retired => "retired",
            KeyState::Revoked => "revoked",
        }
    }
}

impl StoredKey {
    pub fn state(&self) -> KeyState {
        match (self.revoked_at, self.retired_at, self.activated_at) {
            (Some(_), _, _) => KeyState::Revoked,
            (None, Some(_), _) => KeyState::Retired,
            (None, None, Some(_)) => KeyState::Active,
            (None, None, None) => KeyState::Pending,
        }
    }

    pub fn is(&self, state: KeyState) -> bool {
        self.state() == state
    }
}

/// By which keys come and go: `[tokens]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyLifetimes {
    pub algorithm: Algorithm,
    /// `tokens.key_lifetime`: a key signs so long.
    pub lifetime: Duration,
    /// `tokens.key_ahead`: it is published so long before it signs.
    pub ahead: Duration,
    /// `tokens.access_lifetime`
    pub access: Duration,
    pub clock_skew: Duration,
    /// `tokens.refresh_idle`
    pub idle: Duration,
}

impl KeyLifetimes {
    fn algorithm_name(&self) -> &'static str {
        algorithm_name(self.algorithm)
    }

    /// How long others may keep what `/.well-known/jwks.json` answers. Whoever asked a moment before a key was published
    /// asks again well before it signs; ten minutes is what verifiers are used to, and how long they go on believing a
    /// key that was revoked.
    pub fn max_age(&self) -> Duration {
        Duration::from_mins(10).min(self.ahead / 2)
    }
}

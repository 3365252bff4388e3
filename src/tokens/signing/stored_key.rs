//! A signing key as the store keeps it.

use std::time::Duration;

use crate::types::clock::UnixTime;

/// A signing key in the store. The latest of its times decides its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// RFC 7638 thumbprint.
    pub kid: String,
    pub algorithm: String,
    /// The number of the root secret that seals it.
    pub root: u8,
    /// The key, encrypted by [`seal`](super::seal::seal). Empty if it was revoked for good.
    pub sealed: Vec<u8>,
    /// The key is published from here on.
    pub created_at: UnixTime,
    /// The key signs from here on.
    pub activated_at: Option<UnixTime>,
    /// The key no longer signs from here on.
    pub retired_at: Option<UnixTime>,
    /// Tokens that the key signed are rejected from here on.
    pub revoked_at: Option<UnixTime>,
    /// The longest lifetime of access tokens that was configured while the key was active. After the operator lowers
    /// the setting, earlier tokens are still valid until they expire.
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

    /// Returns true if the key was revoked for good: its private half is gone, and no refresh accepts its tokens.
    pub fn is_revoked_for_good(&self) -> bool {
        self.revoked_at.is_some() && self.sealed.is_empty()
    }

    pub fn is(&self, state: KeyState) -> bool {
        self.state() == state
    }
}

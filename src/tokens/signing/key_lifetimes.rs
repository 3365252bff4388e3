//! The settings of `[tokens]` that schedule the signing keys.

use std::time::Duration;

use crate::tokens::jwt::{Algorithm, algorithm_name};

/// How long keys are published, sign and verify.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyLifetimes {
    pub algorithm: Algorithm,
    /// `tokens.key_lifetime`: how long a key signs.
    pub lifetime: Duration,
    /// `tokens.key_ahead`: how long a key is published before it signs.
    pub ahead: Duration,
    /// `tokens.access_lifetime`
    pub access: Duration,
    pub clock_skew: Duration,
    /// `tokens.refresh_idle`
    pub idle: Duration,
}

impl KeyLifetimes {
    pub(super) fn algorithm_name(&self) -> &'static str {
        algorithm_name(self.algorithm)
    }

    /// How long services may cache `/.well-known/jwks.json`. Half of `ahead`, so that a service that fetched the set
    /// just before a new key was published fetches it again before the key signs. At most ten minutes, because that is
    /// also how long a service may still accept a revoked key.
    pub fn max_age(&self) -> Duration {
        Duration::from_mins(10).min(self.ahead / 2)
    }
}

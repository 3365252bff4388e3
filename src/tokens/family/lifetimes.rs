//! The settings of `[tokens]` for families.

use std::time::Duration;

/// How long families live, and how tolerant a rotation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetimes {
    /// `tokens.access_lifetime`: how long an access token is valid.
    pub access: Duration,
    /// `tokens.refresh_idle`: how long a family lives without a refresh.
    pub idle: Duration,
    /// `tokens.refresh_absolute`: how long a family lives after the login.
    pub absolute: Duration,
    /// `tokens.refresh_grace`: how long after a rotation the previous refresh token returns the same new token again,
    /// and older ones get a 409 instead of ending the family.
    pub grace: Duration,
}

impl Lifetimes {
    /// Maximum of `tokens.access_lifetime`: no access token of this gateway ever lived longer, whatever is configured
    /// now.
    pub const MAX_ACCESS: Duration = Duration::from_hours(24);
}

//! A family: one login, and every token that grew from it.
//!
//! The store keeps one row a family and none a rotation. The row holds a counter (the **generation**) and a random salt,
//! and nothing that is a token: [`refresh_token`] derives any generation's token from the salt and a root secret outside
//! the store. [`rotation`] decides what a presented refresh token leads to; [`revocation`] says what can be revoked.

pub mod refresh_token;
pub mod revocation;
pub mod rotation;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// One login, as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub id: TokenId,
    pub subject: String,
    /// Space separated, as in the `scope` claim. Empty for none.
    pub scope: String,
    /// The `aud` of its access tokens. Empty for the configured audience.
    pub audience: Vec<String>,
    pub client_id: String,
    /// Claims beyond the standard ones, put into each access token.
    pub claims: Map<String, Value>,
    /// What the user sees in a list of their devices.
    pub label: String,
    /// Random; together with a root secret it gives the key of this family's refresh tokens.
    pub salt: [u8; 32],
    /// The newest generation of refresh token that exists.
    pub generation: u64,
    /// The root secret that minted it.
    pub root: u8,
    /// When it was made. The grace of its parent counts from here and never slides.
    pub rotated_at: UnixTime,
    /// The newest generation of which an access token was seen in use. Advisory: losing it only widens leniency towards
    /// clients that lost a response.
    pub confirmed: u64,
    pub created_at: UnixTime,
    pub last_used_at: UnixTime,
    /// Where it was used last, as far as that is known: by its login or its last refresh.
    pub address: Option<IpAddr>,
    /// How long it may go without a refresh, if that was said at its login. `None`: as configured.
    pub idle: Option<Duration>,
    /// Dead from here on unless it is refreshed before; never later than `absolute_expiry`.
    pub idle_expiry: UnixTime,
    /// Dead from here on whatever happens. Counts from the login and never moves.
    pub absolute_expiry: UnixTime,
    pub revoked: Option<RevokedAt>,
}

/// When and why a family ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedAt {
    pub at: UnixTime,
    pub reason: RevokeReason,
}

/// Why a family was revoked. The names stand in the store and in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RevokeReason {
    /// Its owner ended it.
    Logout,
    /// An operator, or a caller with the scope `token:revoke`.
    Admin,
    /// A spent refresh token came back: it was stolen, or its thief was.
    Reuse,
    /// The subject reached the limit of live families, and this was the least recently used.
    Limit,
}

impl RevokeReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            RevokeReason::Logout => "logout",
            RevokeReason::Admin => "admin",
            RevokeReason::Reuse => "reuse",
            RevokeReason::Limit => "limit",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [RevokeReason::Logout, RevokeReason::Admin, RevokeReason::Reuse, RevokeReason::Limit]
            .into_iter()
            .find(|reason| reason.as_str() == text)
    }
}

impl Family {
    /// When it dies unless it is refreshed after `now`. Its own limit, which came with its login, only ever shortens the
    /// configured one; a change of that one counts from the next refresh on.
    pub fn next_idle_expiry(&self, lifetimes: &Lifetimes, now: UnixTime) -> UnixTime {
        let idle = self.idle.unwrap_or(lifetimes.idle).min(lifetimes.idle);
        (now + idle).min(self.absolute_expiry)
    }

    /// Neither revoked nor past either of its expiries.
    pub fn is_live(&self, now: UnixTime) -> bool {
        self.revoked.is_none() && now < self.idle_expiry && now < self.absolute_expiry
    }
}

/// How long families live, and how lenient rotation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetimes {
    /// `tokens.access_lifetime`: the most an access token lives.
    pub access: Duration,
    /// `tokens.refresh_idle`: a family that is not refreshed for so long is dead.
    pub idle: Duration,
    /// `tokens.refresh_absolute`: counted from the login.
    pub absolute: Duration,
    /// `tokens.refresh_grace`: how long a parent still gets its child again, and laggards a 409 instead of an alarm.
    pub grace: Duration,
}

impl Lifetimes {
    /// `tokens.access_lifetime` is at most this. No access token of ours ever lived longer, whatever is configured now.
    pub const MOST_ACCESS: Duration = Duration::from_hours(24);
}

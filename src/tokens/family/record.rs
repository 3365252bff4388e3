//! One family as the store keeps it.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};

use super::grant::Grant;
use super::key_rate::KeyRate;
use super::lifetimes::Lifetimes;
use super::origin::FamilyOrigin;
use crate::tokens::bound::Bound;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// One login, as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub id: TokenId,
    pub subject: String,
    /// Separated by spaces, as in the `scope` claim. Empty if there is none.
    pub scope: String,
    /// The `aud` of its access tokens. Empty: the configured audience.
    pub audience: Vec<String>,
    pub client_id: String,
    /// Additional claims of each access token.
    pub claims: Map<String, Value>,
    /// The name of the login in a list of devices.
    pub label: String,
    /// Random. The key of the refresh tokens is derived from it and a root secret.
    pub salt: [u8; 32],
    /// The newest generation: how often the refresh token was rotated. 0: there never was a refresh token.
    pub generation: u64,
    /// The number of the root secret that the newest refresh token is derived from.
    pub root: u8,
    /// When the newest generation was created. For the first one it is the login, by the clock of its gateway, and
    /// nothing counts from it: [`Family::last_rotation`].
    pub rotated_at: UnixTime,
    /// The newest generation of which an access token was used. Losing an update does no harm: a client that lost a
    /// response is then tolerated for longer.
    pub confirmed: u64,
    pub created_at: UnixTime,
    pub last_used_at: UnixTime,
    /// The client address of the login or the last refresh, if it is known.
    pub address: Option<IpAddr>,
    /// How long the family lives without a refresh, if the login set a limit of its own. `None`: as configured.
    pub idle: Option<Duration>,
    /// The family ends here unless it is refreshed before. Never later than `absolute_expiry`.
    pub idle_expiry: UnixTime,
    /// The family ends here in any case. Counts from the login and never changes.
    pub absolute_expiry: UnixTime,
    /// The hash of the secret of an API key. `None` for a login.
    pub key_hash: Option<[u8; 32]>,
    /// How many requests an API key allows. `None`: no limit of its own.
    pub key_rate: Option<KeyRate>,
    /// The login at another issuer that began it. `None` for a login of this gateway's own.
    pub origin: Option<FamilyOrigin>,
    /// `None`, unless a user has granted it to a client at the authorization endpoint.
    pub grant: Option<Grant>,
    pub revoked: Option<RevokedAt>,
}

impl Family {
    /// When the refresh token was rotated, by the clock that is not set back: that of the database, if the store is
    /// shared. `refresh_grace` counts from here; a retry does not extend it. `None` before the first rotation.
    pub fn last_rotation(&self) -> Option<UnixTime> {
        (self.generation > 1).then_some(self.rotated_at)
    }
}

#[cfg(test)]
impl Family {
    /// A family of alice that was refreshed once, at `login`, and does not expire.
    pub(crate) fn sample(login: UnixTime) -> Self {
        Family {
            id: TokenId::from_bytes([7; 16]),
            subject: "alice".into(),
            scope: String::new(),
            audience: Vec::new(),
            client_id: String::new(),
            claims: Map::new(),
            label: String::new(),
            salt: [0; 32],
            generation: 1,
            root: 1,
            rotated_at: login,
            confirmed: 0,
            created_at: login,
            last_used_at: login,
            address: None,
            idle: None,
            idle_expiry: UnixTime::MAX,
            absolute_expiry: UnixTime::MAX,
            key_hash: None,
            key_rate: None,
            origin: None,
            grant: None,
            revoked: None,
        }
    }
}

/// When and why a family was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedAt {
    pub at: UnixTime,
    pub reason: RevokeReason,
}

/// Why a family was revoked. The names are stored and appear in audit events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Its owner logged out.
    Logout,
    /// An operator revoked it, a caller with the scope `token:revoke`, or a provider that reported its end.
    Admin,
    /// A spent refresh token, or an authorization code, was used again: the thief or the owner used it first.
    Reuse,
    /// The subject reached `limits.sessions_per_subject`, or `oauth.sessions_per_client` with this client, and this was
    /// the least recently used family.
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
    /// When the family ends if it is not refreshed after `now`. Its own limit can only shorten the configured one. A
    /// changed configuration applies from the next refresh on.
    pub fn next_idle_expiry(&self, lifetimes: &Lifetimes, now: UnixTime) -> UnixTime {
        let idle = self.idle.unwrap_or(lifetimes.idle).min(lifetimes.idle);
        (now + idle).min(self.absolute_expiry)
    }

    /// The key and the certificate of the client: each refresh needs a proof of them. It is the claim `cnf` of all
    /// access tokens of the family, which only the gateway sets, so that both are always the same.
    pub fn bound_to(&self) -> Bound {
        Bound::of_family(&self.claims)
    }

    /// Returns true for a login with refresh tokens: not for an API key, and not for an access token that was issued
    /// alone.
    pub fn has_refresh_token(&self) -> bool {
        self.generation > 0 && self.key_hash.is_none()
    }

    /// Returns true if the family is neither revoked nor expired.
    pub fn is_live(&self, now: UnixTime) -> bool {
        self.revoked.is_none() && now < self.idle_expiry && now < self.absolute_expiry
    }
}

//! The token broker: issues families, refreshes and revokes them.
//!
//! The two calls of the interface document are in [`refresh`] and [`revoke`]; [`issue`] makes new families for the admin
//! API, [`keys`] looks after the keys that sign, [`metadata`] says what is offered. What they share is here: the store, the
//! secrets, and how long things live.

pub mod issue;
pub mod keys;
pub mod refresh;
pub mod revoke;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::auth::keyring::Keyring;
use crate::auth::seen_generations::SeenGenerations;
use crate::limits::throttle::Throttle;
use crate::store::{Store, StoreError, StoreFuture};
use crate::tokens::family::refresh_token::{PresentedToken, Roots};
use crate::tokens::family::{Family, Lifetimes};
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use keys::OwnKeys;

/// Bodies of the calls that the gateway answers itself are at most so long.
pub const BODY_LIMIT: u64 = 8 * 1024;

/// How tokens are issued.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub issuer: String,
    /// `aud` of access tokens whose family names none.
    pub audience: Vec<String>,
    pub lifetimes: Lifetimes,
    /// `limits.token_size`: longer access tokens are not issued, as they would not be accepted.
    pub token_size: usize,
    /// Live families of one subject; one more, and the least recently used is revoked.
    pub sessions_per_subject: usize,
    /// `timeouts.store`: nobody waits longer for the store.
    pub store_patience: Duration,
    /// `expiresAt` in milliseconds instead of seconds.
    pub expires_at_milliseconds: bool,
    /// `tokenId` and `expiresIn` beside the four fields.
    pub extra_fields: bool,
}

pub struct Broker {
    pub settings: Settings,
    pub store: Arc<dyn Store>,
    pub roots: Arc<Roots>,
    pub keyring: Arc<Keyring>,
    pub own_keys: Arc<OwnKeys>,
    pub seen_generations: Arc<SeenGenerations>,
    pub throttle: Arc<Throttle>,
}

impl Broker {
    /// Waits for the store, but not forever: a disk can be stuck without failing. What was asked for then may still be done,
    /// as after any 503: a refresh that is tried again gets the same child, and a logout that is tried again succeeds.
    pub async fn in_time<T>(&self, answer: StoreFuture<T>) -> Result<T, StoreError> {
        let patience = self.settings.store_patience;
        let late = || StoreError::new(format!("no answer within {patience:?}: is the disk of the database stuck?"));
        tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The answer of a refresh: the four fields of the interface document, and two more by option.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenPair {
    pub success: bool,
    pub access_token: String,
    pub refresh_token: String,
    /// The access token's `exp`, in seconds or by option milliseconds since 1970.
    pub expires_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// The access token's life, in seconds from now.
    #[serde(skip)]
    pub lifetime: u64,
    #[serde(skip)]
    pub scope: String,
    #[serde(skip)]
    family: TokenId,
}

impl TokenPair {
    /// The login that it belongs to.
    pub fn token_id(&self) -> TokenId {
        self.family
    }

    /// The names of its members, as they are written.
    pub const fn members(extra_fields: bool) -> &'static [&'static str] {
        match extra_fields {
            true => &["success", "accessToken", "refreshToken", "expiresAt", "tokenId", "expiresIn"],
            false => &["success", "accessToken", "refreshToken", "expiresAt"],
        }
    }

    /// The admin API says which family it made, whatever the option for clients.
    pub fn show_token_id(&mut self) {
        self.token_id = Some(self.family);
    }
}

impl Broker {
    /// The family that a refresh token is of, alive or not: whoever shows a token that was never minted learns nothing.
    pub async fn family_of(&self, presented: &PresentedToken) -> Result<Option<Family>, Reject> {
        let family = self.in_time(self.store.family(presented.token_id)).await?;
        Ok(family.filter(|family| presented.is_genuine(family, &self.roots)))
    }
}

impl From<StoreError> for Reject {
    fn from(error: StoreError) -> Reject {
        tracing::error!(%error, "the store failed");
        Reject::new(Reason::StoreUnavailable, error.message)
    }
}

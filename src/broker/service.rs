//! The broker itself: what its calls share.
//!
//! A call is a method of [`Broker`] in the file of its subject: `issue.rs`, `access_grants.rs`, `api_keys.rs`,
//! `refresh.rs`, `revoke.rs`, `provider_events.rs`, `event_stream.rs`, `sign_in/complete.rs` and `sign_in/end.rs`. They
//! call the methods here, and those of `issue.rs`, which make families and tokens. None calls back.

use std::sync::Arc;

use super::detached::Detached;
use super::keys::OwnKeys;
use super::refresh_counts::RefreshCounts;
use super::refresh_turns::RefreshTurns;
use super::report_counts::ReportCounts;
use super::settings::BrokerSettings;
use crate::auth::keyring::Keyring;
use crate::auth::seen_generations::SeenGenerations;
use crate::limits::throttle::Throttle;
use crate::store::{Store, StoreError, StoreFuture};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::{PresentedToken, Roots};
use crate::types::clock::SteadyClock;
use crate::types::ids::TokenId;
use crate::types::reject::Reject;

pub struct Broker {
    pub settings: BrokerSettings,
    pub store: Arc<dyn Store>,
    pub roots: Arc<Roots>,
    pub keyring: Arc<Keyring>,
    pub own_keys: Arc<OwnKeys>,
    pub seen_generations: Arc<SeenGenerations>,
    pub throttle: Arc<Throttle>,
    pub refresh_turns: RefreshTurns,
    pub refreshes: RefreshCounts,
    /// What identity providers reported.
    pub reports: ReportCounts,
    /// For calls to providers that go on when their client leaves.
    pub detached: Detached,
    /// Read inside the transaction of a refresh.
    pub clock: Arc<SteadyClock>,
}

impl Broker {
    /// Waits for the store for at most `timeouts.store`, because a disk can hang without failing. The call may still
    /// succeed later, as after every 503: a client that repeats its refresh gets the same refresh token, and a repeated
    /// logout succeeds, or gets 401 because its own token is revoked.
    pub async fn with_timeout<T>(&self, call: StoreFuture<T>) -> Result<T, StoreError> {
        let limit = self.settings.store_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(StoreError::timeout(limit)))
    }

    /// Returns true if this gateway does the work with this name. If the store fails, none does.
    pub async fn holds_lease(&self, name: &str) -> bool {
        self.with_timeout(self.store.hold_lease(name.to_owned())).await.unwrap_or(false)
    }

    /// Waits until what this gateway knows of earlier calls is durable. To be called before a success that rests on it.
    pub async fn settle(&self) -> Result<(), Reject> {
        Ok(self.with_timeout(self.store.check()).await?)
    }

    /// The family with this id, alive or not.
    pub async fn family(&self, id: TokenId) -> Result<Option<Family>, Reject> {
        Ok(self.with_timeout(self.store.family(id)).await?)
    }

    /// The family of a refresh token, alive or not. `None` for a forged token, so that it reveals nothing.
    pub async fn family_of(&self, presented: &PresentedToken) -> Result<Option<Family>, Reject> {
        let family = self.with_timeout(self.store.family(presented.token_id)).await?;
        Ok(family.filter(|family| presented.is_genuine(family, &self.roots)))
    }
}

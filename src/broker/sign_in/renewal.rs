//! One refresh of one login: waits for the lease in the store, asks the provider, and writes what it responds.
//!
//! A new refresh token may be the only one that works from then on. So it is written whatever else the response says,
//! and that of a late holder of the lease unless there is a newer one. If the session has ended, it is kept to be
//! revoked.

use std::pin::pin;
use std::time::Duration;

use super::complete::denied;
use super::exchange::{Checked, NoTokens};
use super::provider::SignInProvider;
use crate::broker::service::Broker;
use crate::store::{LoginLease, ProviderLogin, RefreshedLogin, RevokedBy, SavedLogin};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use crate::types::clock::{Clock, UnixTime, Uptime};
use crate::types::reject::{Reject, with_causes};

/// How long the lease of a process that was killed keeps others from a login. Shorter than the time for which
/// providers accept a spent refresh token: Okta's default is 30 s.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is taken for longer while the provider is asked.
const RENEW: Duration = Duration::from_secs(4);
/// How often a gateway without the lease looks whether the other one is ready.
const LOOK: Duration = Duration::from_millis(250);
/// How long it looks. Longer than a call to a provider can take.
const PATIENCE: Duration = Duration::from_mins(4);

/// How a refresh ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The store has a newer version.
    Changed,
    Ended(&'static str),
    Failed,
}

pub(super) struct Renewal<'r> {
    pub(super) broker: &'r Broker,
    pub(super) clock: &'r dyn Clock,
    /// In the leases of this gateway.
    pub(super) holder: [u8; 16],
    pub(super) family: &'r Family,
    pub(super) login: ProviderLogin,
    pub(super) tokens: ProviderTokens,
    pub(super) with: &'r SignInProvider,
}

impl Renewal<'_> {
    pub(super) async fn run(self) -> Outcome {
        if let Err(outcome) = self.wait_for_lease().await {
            return outcome;
        }
        let outcome = self.while_leased(self.ask()).await;
        if outcome == Outcome::Failed {
            // For the next attempt, here or at another gateway. If this fails, it ends by itself.
            let _ = self.lease(UnixTime::default()).await;
        }
        outcome
    }

    async fn wait_for_lease(&self) -> Result<(), Outcome> {
        let begun = self.uptime();
        loop {
            match self.lease(self.now() + LEASE).await {
                Ok(LoginLease::Granted) => return Ok(()),
                Ok(LoginLease::Changed(_)) => return Err(Outcome::Changed),
                Ok(LoginLease::Ended) => return Err(Outcome::Ended("the session has ended")),
                Ok(LoginLease::Held { .. }) if self.uptime().since(begun) < PATIENCE => tokio::time::sleep(LOOK).await,
                Ok(LoginLease::Held { .. }) => return Err(Outcome::Failed),
                Err(error) => {
                    tracing::warn!(detail = &*error.detail, "cannot lease a login");
                    return Err(Outcome::Failed);
                }
            }
        }
    }

    async fn lease(&self, until: UnixTime) -> Result<LoginLease, Reject> {
        let broker = self.broker;
        let lease = broker.store.lease_login(self.family.id, self.login.version, self.holder, self.now(), until);
        Ok(broker.with_timeout(lease).await?)
    }

    /// Keeps the lease until the work is done.
    async fn while_leased<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match tokio::time::timeout(RENEW, &mut work).await {
                Ok(done) => return done,
                // Without it, another gateway may ask as well.
                Err(_) => drop(self.lease(self.now() + LEASE).await),
            }
        }
    }

    async fn ask(&self) -> Outcome {
        let (with, clock) = (self.with, self.clock);
        let metadata = match with.metadata() {
            Ok(metadata) => metadata,
            Err(unknown) => return self.failed(&unknown.detail),
        };
        // The tokens live from then on, at the earliest.
        let asked = self.now();
        let response = match with.exchange_refresh_token(&metadata, &self.tokens, clock).await {
            Ok(response) => response,
            Err(NoTokens::InvalidGrant) => {
                return self.end("the provider rejects the refresh token: invalid_grant").await;
            }
            Err(failed) => return self.failed(&failed.detail()),
        };
        let mut tokens = self.tokens.clone();
        // Without a new one, the old one stays.
        tokens.refresh_token = response.refresh_token.clone().or(tokens.refresh_token);
        match with.check_refreshed(&metadata, response, &self.tokens, clock).await {
            Ok(checked) => self.save(checked, tokens, asked).await,
            Err(NoTokens::OtherLogin(detail)) => {
                let provider = &*self.login.provider;
                tracing::warn!(session = %self.family.id, provider, detail, "a refresh has ended a login");
                let outcome = self.end("the provider's response to a refresh is for another login").await;
                self.keep(&tokens).await;
                outcome
            }
            Err(failed) => {
                self.keep(&tokens).await;
                self.failed(&failed.detail())
            }
        }
    }

    /// Writes the new tokens with the claims that they came with. The rules run again: a group may have been lost.
    async fn save(&self, checked: Checked, mut tokens: ProviderTokens, asked: UnixTime) -> Outcome {
        let rules = &self.with.settings.rules;
        let claims = match checked.claims.as_ref().map(|claims| rules.admit(claims)).transpose() {
            Ok(claims) => claims.unwrap_or_else(|| self.family.claims.clone()),
            Err(why) => {
                let detail = denied(why).detail;
                tracing::info!(session = %self.family.id, detail = &*detail, "a user may not go on after a refresh");
                let outcome = self.end("the user may not sign in any more").await;
                self.keep(&tokens).await;
                return outcome;
            }
        };
        let fresh_for = checked.fresh_for();
        tokens.set_access_ends(asked + checked.response.lifetime);
        if tokens.id_token.is_some() {
            tokens.id_token = checked.response.id_token.or(tokens.id_token);
        }
        let idle_expiry = self.family.next_idle_expiry(&self.broker.settings.lifetimes, self.now());
        let Some(login) = self.sealed(&tokens, asked + fresh_for) else { return Outcome::Failed };
        let due_before = self.login.due;
        self.write(RefreshedLogin { login, scope: checked.scope, claims, idle_expiry, due_before }).await
    }

    /// Writes a refresh token that came with nothing else that can be used. The login stays due.
    async fn keep(&self, tokens: &ProviderTokens) {
        if tokens.refresh_token == self.tokens.refresh_token {
            return;
        }
        let Some(login) = self.sealed(tokens, self.login.due) else { return };
        let Family { scope, claims, idle_expiry, .. } = self.family.clone();
        let due_before = self.login.due;
        self.write(RefreshedLogin { login, scope, claims, idle_expiry, due_before }).await;
    }

    fn sealed(&self, tokens: &ProviderTokens, due: UnixTime) -> Option<ProviderLogin> {
        let version = self.login.version + 1;
        let place = Place { family: self.family.id, issuer: &self.with.provider.issuer, version };
        let (root, sealed) = tokens.seal(place, &self.broker.roots)?;
        Some(ProviderLogin { root, sealed, version, due, ..self.login.clone() })
    }

    async fn write(&self, refreshed: RefreshedLogin) -> Outcome {
        let (id, holder) = (self.family.id, self.holder);
        // Not within `timeouts.store`: this is the only copy of the new refresh token.
        match self.broker.store.save_login(id, holder, refreshed, EventContext::from(self.now())).await {
            Ok(SavedLogin::Saved | SavedLogin::Newer) => Outcome::Changed,
            Ok(SavedLogin::Ended) => Outcome::Ended("the session has ended"),
            Err(error) => {
                tracing::error!(session = %id, error = with_causes(&error), "cannot save a refreshed login");
                Outcome::Failed
            }
        }
    }

    /// What the provider said ends the login.
    async fn end(&self, why: &'static str) -> Outcome {
        let broker = self.broker;
        let context = EventContext::from(self.now()).by_provider(&self.with.provider.name);
        let revoked = broker.store.revoke_family(self.family.id, RevokedBy::Admin, context);
        if let Err(error) = broker.with_timeout(revoked).await {
            tracing::warn!(session = %self.family.id, %error, "cannot end a login");
        }
        Outcome::Ended(why)
    }

    fn failed(&self, detail: &str) -> Outcome {
        let provider = &*self.login.provider;
        tracing::warn!(session = %self.family.id, provider, detail, "cannot refresh a login at its provider");
        Outcome::Failed
    }

    fn now(&self) -> UnixTime {
        self.clock.now()
    }

    fn uptime(&self) -> Uptime {
        self.clock.uptime()
    }
}

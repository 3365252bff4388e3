//! One refresh of one login: waits for the lease in the store, asks the provider, and writes what it responds.
//!
//! A new refresh token may be the only one that works from then on. So it is written before anything else of the
//! response counts, again until the store can write it, and that of a late holder of the lease unless there is a newer
//! one. If the session has ended, it is kept to be revoked.
//!
//! What the response leaves out is as before. Only `invalid_grant`, tokens for another user, and the rules of the
//! operator end the session. Everything else that is wrong with a response may be right in the next one.

use std::pin::pin;
use std::time::Duration;

use super::complete::denied;
use super::exchange::{Before, Checked, Responded};
use super::no_tokens::NoTokens;
use super::provider::{SignInProvider, UnusedToken};
use super::unsaved::{Held, Unsaved};
use crate::auth::provider::Metadata;
use crate::broker::service::Broker;
use crate::store::{
    LOGIN_LEASE, LoginLease, ProviderLogin, RefreshedLogin, Renewed, RevokedBy, SavedLogin, StoreError,
};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use crate::tokens::sign_in::token_response::TokenResponse;
use crate::types::boot_time::BootTime;
use crate::types::clock::{Clock, UnixTime, Uptime};
use crate::types::reject::{Reject, with_causes};

/// How often the lease is taken for longer while the provider is asked.
const RENEW: Duration = Duration::from_secs(4);
/// How often a gateway without the lease looks whether the other one is ready.
const LOOK: Duration = Duration::from_millis(250);
/// How long it looks. Longer than a call to a provider can take.
const PATIENCE: Duration = Duration::from_mins(4);
/// How soon a new refresh token is written again after an error of the store. The pause doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(1);

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
    pub(super) unsaved: &'r Unsaved,
    pub(super) family: &'r Family,
    pub(super) login: ProviderLogin,
    pub(super) tokens: ProviderTokens,
    pub(super) with: &'r SignInProvider,
}

impl Renewal<'_> {
    pub(super) async fn run(mut self) -> Outcome {
        if let Err(outcome) = self.wait_for_lease().await {
            return outcome;
        }
        let outcome = self.refresh().await;
        if outcome == Outcome::Failed {
            self.give_up_lease().await;
        }
        outcome
    }

    async fn wait_for_lease(&self) -> Result<(), Outcome> {
        let begun = self.uptime();
        loop {
            let asked = BootTime::now();
            match self.lease(self.now() + LOGIN_LEASE).await {
                // This process was stopped meanwhile.
                Ok(LoginLease::Granted) if BootTime::now().since(asked) > LOGIN_LEASE / 2 => {}
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

    /// For the next attempt, here or at another gateway. If this fails, the lease ends by itself.
    async fn give_up_lease(&self) {
        let _ = self.lease(UnixTime::default()).await;
    }

    /// Keeps the lease until the work is done.
    async fn while_leased<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = tokio::time::timeout(RENEW, &mut work).await {
                return done;
            }
            // Without it, another gateway may ask as well. The work goes on meanwhile, because the store may hang.
            let mut lease = pin!(self.lease(self.now() + LOGIN_LEASE));
            tokio::select! {
                _ = &mut lease => {}
                done = &mut work => {
                    // What follows may end the lease.
                    drop(lease.await);
                    return done;
                }
            }
        }
    }

    async fn refresh(&mut self) -> Outcome {
        let metadata = match self.with.metadata() {
            Ok(metadata) => metadata,
            Err(unknown) => return self.failed(&unknown.detail),
        };
        // The tokens live from then on, at the earliest.
        let asked = self.now();
        let exchange = self.with.exchange_refresh_token(&metadata, &self.tokens, self.clock);
        let Responded { refresh_token, tokens } = self.while_leased(exchange).await;
        if let Some(refresh_token) = refresh_token
            && let Err(outcome) = self.keep(refresh_token).await
        {
            return outcome;
        }
        match tokens {
            Ok(response) => self.while_leased(self.believe(&metadata, response, asked)).await,
            Err(NoTokens::InvalidGrant) => self.end_rejected().await,
            Err(failed) => self.failed(&failed.detail()),
        }
    }

    /// Writes a new refresh token, and nothing else. The login stays due.
    async fn keep(&mut self, refresh_token: String) -> Result<(), Outcome> {
        if self.tokens.refresh_token.as_ref() == Some(&refresh_token) {
            return Ok(());
        }
        self.tokens.refresh_token = Some(refresh_token);
        let login = self.sealed(&self.tokens, self.login.due).ok_or(Outcome::Failed)?;
        let refreshed = RefreshedLogin { login: login.clone(), renewed: None };
        let saved = self.while_leased(self.write_until_saved(refreshed)).await;
        // What follows is newer.
        self.login = login;
        match saved {
            Some(SavedLogin::Saved) => Ok(()),
            _ => Err(self.outcome(saved)),
        }
    }

    /// Writes the only copy of a new refresh token, again until the store can. `None`: the store was closed before.
    async fn write_until_saved(&self, refreshed: RefreshedLogin) -> Option<SavedLogin> {
        let mut held: Option<Held<'_>> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.try_to_write(refreshed.clone()).await {
                Ok(saved) => {
                    if let Some(held) = held {
                        held.saved();
                    }
                    return Some(saved);
                }
                Err(error) => error,
            };
            if error.is_closed() {
                self.not_saved(&error);
                return None;
            }
            held.get_or_insert_with(|| self.unsaved.hold(self.family.id, &error));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn believe(&self, metadata: &Metadata, response: TokenResponse, asked: UnixTime) -> Outcome {
        let before = Before { tokens: &self.tokens, family: self.family };
        match self.with.check_refreshed(metadata, response, before, self.clock).await {
            Ok(checked) => self.save(checked, asked).await,
            Err(NoTokens::OtherUser(detail)) => {
                let provider = &*self.login.provider;
                tracing::warn!(session = %self.family.id, provider, detail, "a refresh has ended a login");
                self.end("the provider's response to a refresh is for another user").await
            }
            Err(failed) => self.failed(&failed.detail()),
        }
    }

    /// Writes the new tokens, and the claims as they are now known. The rules run each time: a group may have been
    /// lost, and a reload may have changed the rules.
    async fn save(&self, checked: Checked, asked: UnixTime) -> Outcome {
        let rules = &self.with.settings.rules;
        let admitted = match &checked.claims {
            Some(known) => rules.admit(&known.claims()),
            None => rules.admit_by_some(&self.family.claims),
        };
        let mut claims = match admitted {
            Ok(claims) => claims,
            Err(why) => {
                let detail = denied(why).detail;
                tracing::info!(session = %self.family.id, detail = &*detail, "a user may not go on after a refresh");
                return self.end("the user may not sign in any more").await;
            }
        };
        // A refresh is no authentication.
        if let Some(time) = self.family.claims.get("auth_time") {
            claims.insert("auth_time".into(), time.clone());
        }
        let due = asked + checked.fresh_for();
        let mut tokens = self.tokens.clone();
        tokens.renew_access(asked, checked.lifetime);
        tokens.claims = checked.claims.or(tokens.claims);
        if tokens.id_token.is_some() {
            tokens.id_token = checked.response.id_token.or(tokens.id_token);
        }
        let Some(login) = self.sealed(&tokens, due) else { return Outcome::Failed };
        let renewed = Renewed { scope: checked.scope, claims, due_before: self.login.due };
        // If this fails, the next refresh has the refresh token that the store has already.
        let saved = self.try_to_write(RefreshedLogin { login, renewed: Some(renewed) }).await;
        self.outcome(saved.inspect_err(|error| self.not_saved(error)).ok())
    }

    fn sealed(&self, tokens: &ProviderTokens, due: UnixTime) -> Option<ProviderLogin> {
        let version = self.login.version + 1;
        let place = Place { family: self.family.id, issuer: &self.with.provider.issuer, version };
        let (root, sealed) = tokens.seal(place, &self.broker.roots)?;
        Some(ProviderLogin { root, sealed, version, due, ..self.login.clone() })
    }

    /// Not within `timeouts.store`: a call that is given up may yet write.
    async fn try_to_write(&self, refreshed: RefreshedLogin) -> Result<SavedLogin, StoreError> {
        let context = EventContext::from(self.now());
        self.broker.store.save_login(self.family.id, self.holder, refreshed, context).await
    }

    fn not_saved(&self, error: &StoreError) {
        let error = with_causes(error);
        tracing::error!(session = %self.family.id, error, "a refreshed login was not saved");
    }

    fn outcome(&self, saved: Option<SavedLogin>) -> Outcome {
        match saved {
            Some(SavedLogin::Saved | SavedLogin::Newer) => Outcome::Changed,
            Some(SavedLogin::Ended) => Outcome::Ended("the session has ended"),
            Some(SavedLogin::Forgotten) => {
                self.revoke_unused();
                Outcome::Ended("the session has ended")
            }
            None => Outcome::Failed,
        }
    }

    /// The session ended during the refresh, and the refresh token of before was revoked. The store does not know the
    /// new one.
    fn revoke_unused(&self) {
        let unused = self.tokens.refresh_token.clone().map(UnusedToken::refresh);
        if let Some((metadata, unused)) = self.with.metadata().ok().zip(unused) {
            self.with.revoke_unused(&metadata, unused, self.now());
        }
    }

    /// What the provider said ends the login.
    async fn end(&self, why: &'static str) -> Outcome {
        let broker = self.broker;
        // With the lease, its tokens would be revoked at the provider only later.
        self.give_up_lease().await;
        let context = EventContext::from(self.now()).by_provider(&self.with.provider.name);
        let revoked = broker.store.revoke_family(self.family.id, RevokedBy::Admin, context);
        if let Err(error) = broker.with_timeout(revoked).await {
            tracing::warn!(session = %self.family.id, %error, "cannot end a login");
        }
        Outcome::Ended(why)
    }

    /// Ends the login, unless another gateway has refreshed it meanwhile, or tries to. If this one was stopped for
    /// longer than its lease, the provider rejects what the other one has spent.
    async fn end_rejected(&self) -> Outcome {
        match self.lease(self.now() + LOGIN_LEASE).await {
            Ok(LoginLease::Changed(_)) => Outcome::Changed,
            Ok(LoginLease::Held { .. }) => self.failed("another gateway has taken the lease"),
            Ok(LoginLease::Ended | LoginLease::Granted) => {
                self.end("the provider rejects the refresh token: invalid_grant").await
            }
            // It is not known, and the next refresh finds out.
            Err(error) => self.failed(&error.detail),
        }
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

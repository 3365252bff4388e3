//! Refreshes logins at their providers (OpenID Connect Core section 12): one request at a time for each login, by all
//! gateways together, a minute before the tokens end.
//!
//! A provider that rotates refresh tokens revokes all of them if one is used twice. So a request that finds a login
//! due starts one task, which no client can cancel, and goes on with what the login is. Requests wait only when that
//! has ended. The task holds a lease in the store. The response of a late holder is kept unless there is a newer one:
//! it has the only living refresh token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::complete::denied;
use super::exchange::{Checked, Match, NoTokens};
use super::provider::{SignInProvider, SignInProviders};
use crate::auth::handles::{RefreshLogins, Refreshed, Refreshing};
use crate::broker::service::Broker;
use crate::store::{LoginLease, ProviderLogin, RefreshedLogin, RevokedBy, SavedLogin};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::sign_in::id_token::Earlier;
use crate::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use crate::types::clock::{Clock, UnixTime, Uptime};
use crate::types::ids::TokenId;
use crate::types::reject::{Reject, with_causes};
use crate::types::secret;

/// How long a holder of the lease may take. Longer than a call to a provider can.
const LEASE: Duration = Duration::from_secs(90);
/// How often a gateway without the lease looks whether the other one is ready.
const LOOK: Duration = Duration::from_millis(250);
/// How long a request waits for a login that is worth nothing without its provider.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon requests look again while a refresh runs.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after a failed refresh no other one begins: the first time, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));
/// Failed refreshes that have ended are forgotten when there are more than this.
const MAX_FAILED: usize = 4096;

/// Refreshes the logins of one gateway.
pub struct LoginRefresh {
    pub broker: Arc<Broker>,
    /// Those of the active configuration.
    pub providers: Arc<ArcSwap<SignInProviders>>,
    pub clock: Arc<dyn Clock>,
    running: Mutex<HashMap<TokenId, Run>>,
}

/// The refresh of one login.
enum Run {
    Running(watch::Receiver<Option<Outcome>>),
    Failed { times: u32, not_before: Uptime },
}

/// How a refresh ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The store has a newer version.
    Changed,
    Ended(&'static str),
    Failed,
}

impl LoginRefresh {
    pub fn new(broker: Arc<Broker>, providers: Arc<ArcSwap<SignInProviders>>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(LoginRefresh { broker, providers, clock, running: Mutex::default() })
    }
}

/// What requests get while a login is not refreshed: it is good until its tokens end, and for `max_staleness` more if
/// the provider fails.
struct Rest {
    access_ends: UnixTime,
    stale_ends: UnixTime,
}

impl Rest {
    fn after_failure(&self, now: UnixTime) -> Refreshed {
        match now < self.stale_ends {
            true => Refreshed::Good((now + AGAIN).min(self.stale_ends)),
            false => Refreshed::Unavailable("the provider refreshes no login, and max_staleness is over".to_owned()),
        }
    }
}

/// The trait object of the requests.
pub struct Refresher(pub Arc<LoginRefresh>);

impl RefreshLogins for Refresher {
    fn refresh(&self, family: Family, login: ProviderLogin) -> Refreshing {
        let refresh = self.0.clone();
        Box::pin(async move { refresh.refresh(family, login).await })
    }
}

impl LoginRefresh {
    async fn refresh(self: &Arc<Self>, family: Family, login: ProviderLogin) -> Refreshed {
        let providers = self.providers.load_full();
        let Some(with) = providers.named(&login.provider) else { return Refreshed::Ended("its provider was removed") };
        let Some(tokens) = self.broker.tokens_of(&family, &login) else {
            return Refreshed::Ended("the tokens of the provider cannot be opened");
        };
        let now = self.clock.now();
        let access_ends = tokens.access_ends();
        let rest = Rest { access_ends, stale_ends: access_ends + with.settings.max_staleness };
        let Some(mut running) = self.begin(family, login, tokens, with.clone()) else { return rest.after_failure(now) };
        if now < rest.access_ends {
            return Refreshed::Good((now + AGAIN).min(rest.access_ends));
        }
        // An error says that the task has ended without a result.
        let waited = tokio::time::timeout(PATIENCE, running.wait_for(Option::is_some)).await;
        match waited.ok().and_then(Result::ok).and_then(|outcome| *outcome) {
            Some(Outcome::Changed) => Refreshed::Changed,
            Some(Outcome::Ended(why)) => Refreshed::Ended(why),
            Some(Outcome::Failed) | None => rest.after_failure(self.clock.now()),
        }
    }

    /// Starts the refresh, or joins the one that runs. `None`: it failed a moment ago.
    fn begin(
        self: &Arc<Self>,
        family: Family,
        login: ProviderLogin,
        tokens: ProviderTokens,
        with: SignInProvider,
    ) -> Option<watch::Receiver<Option<Outcome>>> {
        let (id, now) = (family.id, self.clock.uptime());
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match running.get(&id) {
            Some(Run::Running(run)) => return Some(run.clone()),
            Some(Run::Failed { not_before, .. }) if now < *not_before => return None,
            Some(Run::Failed { times, .. }) => *times,
            None => 0,
        };
        if running.len() >= MAX_FAILED {
            running.retain(|_, run| matches!(run, Run::Running(_)));
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(id, Run::Running(receiver.clone()));
        let refresh = self.clone();
        // Not in the future of the request: its client may leave, and the provider would have rotated for nothing.
        tokio::spawn(async move {
            let outcome = refresh.run(&family, login, tokens, &with).await;
            refresh.ended(id, outcome, times);
            let _ = sender.send(Some(outcome));
        });
        Some(receiver)
    }

    fn ended(&self, id: TokenId, outcome: Outcome, times: u32) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome != Outcome::Failed {
            running.remove(&id);
            return;
        }
        let not_before = self.clock.uptime() + backoff(times, secret::random());
        running.insert(id, Run::Failed { times: times + 1, not_before });
    }

    /// Waits for the lease, then asks the provider.
    async fn run(
        &self,
        family: &Family,
        login: ProviderLogin,
        tokens: ProviderTokens,
        with: &SignInProvider,
    ) -> Outcome {
        let holder = secret::random::<16>();
        let begun = self.clock.uptime();
        loop {
            let now = self.clock.now();
            let lease = self.broker.store.lease_login(family.id, login.version, holder, now, now + LEASE);
            match self.broker.with_timeout(lease).await {
                Ok(LoginLease::Granted) => break,
                Ok(LoginLease::Changed(_)) => return Outcome::Changed,
                Ok(LoginLease::Ended) => return Outcome::Ended("the session has ended"),
                Ok(LoginLease::Held { .. }) if self.clock.uptime().since(begun) < LEASE => {
                    tokio::time::sleep(LOOK).await
                }
                Ok(LoginLease::Held { .. }) => return Outcome::Failed,
                Err(error) => {
                    tracing::warn!(%error, "cannot lease a login");
                    return Outcome::Failed;
                }
            }
        }
        // The tokens live from then on, at the earliest.
        let asked = self.clock.now();
        match self.ask(with, &tokens).await {
            Ok(checked) => self.save(family, login, tokens, (checked, asked), (holder, with)).await,
            Err(NoTokens::InvalidGrant) => {
                self.end(family, with, "the provider rejects the refresh token: invalid_grant").await
            }
            Err(NoTokens::Failed(detail)) if is_lie(&detail) => {
                tracing::warn!(session = %family.id, provider = &*login.provider, detail, "a refresh has ended a login");
                self.end(family, with, "the provider's response to a refresh is for another login").await
            }
            Err(failed) => {
                let (provider, detail) = (&*login.provider, failed.detail());
                tracing::warn!(session = %family.id, provider, detail, "cannot refresh a login at its provider");
                Outcome::Failed
            }
        }
    }

    async fn ask(&self, with: &SignInProvider, tokens: &ProviderTokens) -> Result<Checked, NoTokens> {
        let unavailable = |unknown: Reject| NoTokens::Unavailable(unknown.detail.into_owned());
        let metadata = with.metadata().map_err(unavailable)?;
        let refresh_token = tokens.refresh_token.as_deref().ok_or(NoTokens::InvalidGrant)?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let response = with.post(&metadata, &fields, &*self.clock).await?;
        let earlier = Some(Earlier { subject: &tokens.subject, auth_time: tokens.auth_time });
        with.check(&metadata, response, Match { nonce: &tokens.nonce, earlier }, &*self.clock).await
    }

    /// Writes the new tokens with the claims that they came with. The rules run again: a group may have been lost.
    async fn save(
        &self,
        family: &Family,
        login: ProviderLogin,
        mut tokens: ProviderTokens,
        (checked, asked): (Checked, UnixTime),
        (holder, with): ([u8; 16], &SignInProvider),
    ) -> Outcome {
        let claims = match checked.claims.as_ref().map(|claims| with.settings.rules.admit(claims)).transpose() {
            Ok(claims) => claims.unwrap_or_else(|| family.claims.clone()),
            Err(why) => {
                let detail = denied(why).detail;
                tracing::info!(session = %family.id, detail = &*detail, "a user may not go on after a refresh");
                return self.end(family, with, "the user may not sign in any more").await;
            }
        };
        let (now, version, fresh_for) = (self.clock.now(), login.version + 1, checked.fresh_for());
        tokens.set_access_ends(asked + checked.response.lifetime);
        // Without a new one, the old one stays.
        tokens.refresh_token = checked.response.refresh_token.or(tokens.refresh_token);
        if tokens.id_token.is_some() {
            tokens.id_token = checked.response.id_token.or(tokens.id_token);
        }
        let place = Place { family: family.id, issuer: &with.provider.issuer, version };
        let Some((root, sealed)) = tokens.seal(place, &self.broker.roots) else { return Outcome::Failed };
        let saved = ProviderLogin { root, sealed, version, due: asked + fresh_for, ..login };
        let idle_expiry = family.next_idle_expiry(&self.broker.settings.lifetimes, now);
        let context = EventContext::from(now);
        let refreshed = RefreshedLogin { login: saved, scope: checked.scope, claims, idle_expiry };
        let written = self.broker.store.save_login(family.id, holder, refreshed, context);
        // Not within `timeouts.store`: this is the only copy of the new refresh token.
        match written.await {
            Ok(SavedLogin::Saved | SavedLogin::Newer) => Outcome::Changed,
            Ok(SavedLogin::Ended) => Outcome::Ended("the session has ended"),
            Err(error) => {
                tracing::error!(session = %family.id, error = with_causes(&error), "cannot save a refreshed login");
                Outcome::Failed
            }
        }
    }

    /// What the provider said ends the login.
    async fn end(&self, family: &Family, with: &SignInProvider, why: &'static str) -> Outcome {
        let context = EventContext::from(self.clock.now()).by_provider(&with.provider.name);
        let revoked = self.broker.store.revoke_family(family.id, RevokedBy::Admin, context);
        if let Err(error) = self.broker.with_timeout(revoked).await {
            tracing::warn!(session = %family.id, %error, "cannot end a login");
        }
        Outcome::Ended(why)
    }
}

/// Returns true if the response is signed, but is not for this login: it never becomes right.
fn is_lie(detail: &str) -> bool {
    detail.starts_with("the ID token is rejected") || detail.starts_with("sub of UserInfo")
}

/// Doubles with each failure. `random`: so that gateways do not ask together.
fn backoff(times: u32, random: [u8; 2]) -> Duration {
    let longest = (BACKOFF.0 * 2u32.saturating_pow(times.min(16))).min(BACKOFF.1);
    let part = u32::from(u16::from_be_bytes(random));
    longest / 2 + longest / 2 * part / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_failed_refreshes_doubles() {
        for (times, shortest, longest) in [(0, 5, 10), (1, 10, 20), (3, 40, 80), (5, 150, 300), (40, 150, 300)] {
            let secs = [[0, 0], [255, 255]].map(|random| backoff(times, random).as_secs());
            assert_eq!(secs, [shortest, longest], "{times}");
        }
    }

    #[test]
    fn a_login_outlives_a_failing_provider_for_a_while() {
        let end = UnixTime::from_secs(1_000);
        let rest = Rest { access_ends: end, stale_ends: end + Duration::from_secs(60) };
        assert!(matches!(rest.after_failure(end), Refreshed::Good(until) if until == end + AGAIN));
        let last = end + Duration::from_millis(59_500);
        assert!(matches!(rest.after_failure(last), Refreshed::Good(until) if until == rest.stale_ends));
        assert!(matches!(rest.after_failure(rest.stale_ends), Refreshed::Unavailable(_)));
    }
}

//! Refreshes logins at their providers (OpenID Connect Core section 12): one request at a time for each login, by all
//! gateways together, a minute before the tokens end.
//!
//! A provider that rotates refresh tokens revokes all of them if one is used twice. So a request that finds a login
//! due starts one task, which no client can cancel, and goes on with what the login is. Requests wait only when that
//! has ended. `renewal` is the task. The gateway waits for it before it exits or hands its store over, and repeats
//! those of a process that was killed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::provider::{SignInProvider, SignInProviders};
use super::renewal::{Outcome, Renewal};
use super::unsaved::Unsaved;
use crate::auth::handles::{RefreshLogins, Refreshed, Refreshing};
use crate::auth::renewals::Renewals;
use crate::broker::service::Broker;
use crate::store::ProviderLogin;
use crate::tokens::family::Family;
use crate::tokens::sign_in::provider_tokens::ProviderTokens;
use crate::types::clock::{Clock, UnixTime, Uptime};
use crate::types::ids::TokenId;
use crate::types::secret;

/// How long a request waits for a login that is worth nothing without its provider.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon requests look again while a refresh runs.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after a failed refresh no other one begins: the first time, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));
/// Failed refreshes that have ended are forgotten when there are more than this.
const MAX_FAILED: usize = 4096;
/// Refreshes of killed processes that are repeated in one round.
const AT_ONCE: usize = 64;

/// Refreshes the logins of one gateway.
pub struct LoginRefresh {
    pub broker: Arc<Broker>,
    /// Those of the active configuration.
    pub providers: Arc<ArcSwap<SignInProviders>>,
    pub clock: Arc<dyn Clock>,
    /// Of the streams, which may lose rights by a refresh.
    renewals: Arc<Renewals>,
    /// In the leases of this gateway.
    holder: [u8; 16],
    /// It lives longer than the requests.
    tasks: Handle,
    running: Mutex<HashMap<TokenId, Run>>,
    unsaved: Unsaved,
    /// The last look for interrupted refreshes failed.
    was_cut_off: AtomicBool,
    /// True when the next gateway begins what is due.
    has_ended: AtomicBool,
}

/// The refresh of one login.
enum Run {
    Running(watch::Receiver<Option<Outcome>>),
    Failed { times: u32, not_before: Uptime },
}

impl LoginRefresh {
    /// Refreshes run on the runtime of the caller: that of the control thread, which ends after the workers.
    pub fn new(
        broker: Arc<Broker>,
        providers: Arc<ArcSwap<SignInProviders>>,
        clock: Arc<dyn Clock>,
        renewals: Arc<Renewals>,
    ) -> Arc<Self> {
        let holder = secret::random();
        let tasks = Handle::current();
        Arc::new(LoginRefresh {
            broker,
            providers,
            clock,
            renewals,
            holder,
            tasks,
            running: Mutex::default(),
            unsaved: Unsaved::default(),
            was_cut_off: AtomicBool::default(),
            has_ended: AtomicBool::default(),
        })
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
        if now < self.stale_ends {
            Refreshed::Stale((now + AGAIN).min(self.stale_ends))
        } else {
            Refreshed::Unavailable("the provider refreshes no login, and max_staleness is over".to_owned())
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
        let Some(with) = providers.of(&family, &login) else {
            return Refreshed::Ended("its provider was removed, or has another issuer");
        };
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

    /// Starts the refresh, or joins the one that runs. `None`: it failed a moment ago, or none may begin.
    fn begin(
        self: &Arc<Self>,
        family: Family,
        login: ProviderLogin,
        tokens: ProviderTokens,
        with: SignInProvider,
    ) -> Option<watch::Receiver<Option<Outcome>>> {
        let id = family.id;
        let now = self.clock.uptime();
        let mut running = self.running.lock();
        let times = match running.get(&id) {
            // Without its sender, the task has ended by a panic.
            Some(Run::Running(run)) if run.has_changed().is_ok() => return Some(run.clone()),
            Some(Run::Failed { not_before, .. }) if now < *not_before => return None,
            Some(Run::Failed { times, .. }) => *times,
            Some(Run::Running(_)) | None => 0,
        };
        if self.has_ended.load(Ordering::Relaxed) || self.unsaved.is_full() {
            return None;
        }
        if running.len() >= MAX_FAILED {
            running.retain(|_, run| matches!(run, Run::Running(_)));
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(id, Run::Running(receiver.clone()));
        let refresh = self.clone();
        // Not in the future of the request: its client may leave, and the provider would have rotated for nothing.
        self.tasks.spawn(async move {
            let broker = &*refresh.broker;
            let clock = &*refresh.clock;
            let holder = refresh.holder;
            let unsaved = &refresh.unsaved;
            let renewal = Renewal { broker, clock, holder, unsaved, family: &family, login, tokens, with: &with };
            let outcome = renewal.run().await;
            refresh.ended(id, outcome, times);
            let _ = sender.send(Some(outcome));
        });
        Some(receiver)
    }

    fn ended(&self, id: TokenId, outcome: Outcome, times: u32) {
        let mut running = self.running.lock();
        if outcome != Outcome::Failed {
            running.remove(&id);
            return self.renewals.read_again(&[id]);
        }
        let not_before = self.clock.uptime() + backoff(times, secret::random());
        running.insert(id, Run::Failed { times: times + 1, not_before });
    }

    /// Repeats the refreshes of a process that was killed. The provider may have responded to it: one that rotates
    /// refresh tokens accepts the old one for some seconds more, if at all. A provider with unknown metadata is asked
    /// later.
    pub async fn resume(self: &Arc<Self>) {
        let interrupted = self.broker.store.interrupted_logins(self.clock.now(), AT_ONCE);
        let interrupted = match self.broker.with_timeout(interrupted).await {
            Ok(interrupted) => interrupted,
            Err(error) => {
                self.was_cut_off.store(true, Ordering::Relaxed);
                return tracing::warn!(%error, "cannot read which refreshes were interrupted");
            }
        };
        // After an outage, the leases of other gateways may have ended. First, these save what they have.
        if self.was_cut_off.swap(false, Ordering::Relaxed) {
            return;
        }
        let providers = self.providers.load_full();
        for (family, login) in interrupted {
            let with = providers.of(&family, &login).filter(|with| with.metadata().is_ok());
            let Some((with, tokens)) = with.zip(self.broker.tokens_of(&family, &login)) else { continue };
            let id = family.id;
            let provider = login.provider.clone();
            if self.begin(family, login, tokens, with.clone()).is_some() {
                tracing::info!(session = %id, provider, "repeating an interrupted refresh");
            }
        }
    }

    /// Lets no refresh begin, and those that run go on.
    pub fn begin_no_more(&self) {
        // With the lock, so that each refresh has begun before, and is waited for.
        let _running = self.running.lock();
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns true while a provider may be about to respond.
    pub fn is_running(&self) -> bool {
        self.running().is_some()
    }

    /// Waits for the refreshes that run, but not longer than `limit`: what a provider responds is in no other place.
    pub async fn finish(&self, limit: Duration) {
        let all = async {
            while let Some(mut run) = self.running() {
                // An error says that the task has ended without a result.
                let _ = run.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(limit, all).await.is_ok() {
            return;
        }
        match self.unsaved.count() {
            0 => tracing::warn!("a provider does not respond to a refresh: the next start repeats it"),
            unsaved => tracing::error!(unsaved, "refreshed logins cannot be saved: their sessions may end"),
        }
    }

    fn running(&self) -> Option<watch::Receiver<Option<Outcome>>> {
        let running = self.running.lock();
        running.values().find_map(|run| match run {
            Run::Running(run) if run.has_changed().is_ok() => Some(run.clone()),
            _ => None,
        })
    }
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
        assert!(matches!(rest.after_failure(end), Refreshed::Stale(until) if until == end + AGAIN));
        let last = end + Duration::from_millis(59_500);
        assert!(matches!(rest.after_failure(last), Refreshed::Stale(until) if until == rest.stale_ends));
        assert!(matches!(rest.after_failure(rest.stale_ends), Refreshed::Unavailable(_)));
    }
}

//! One issuer's keys as they stand: the last good set, when it was confirmed, and how that went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::refetch::{Refetch, RefetchOutcome};
use super::settings::{KeySource, OnStale, Remote, Startup};
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::types::clock::UnixTime;

/// Kept up to date by one task ([`watch`](super::watch)), read by everybody.
pub struct Source {
    pub policy: Arc<Issuer>,
    pub settings: KeySource,
    pub counts: Counts,
    pub(super) refetch: Option<Arc<Refetch>>,
    state: Mutex<State>,
}

struct State {
    /// The last good set; empty before the first.
    keys: Arc<KeySet>,
    /// When the source last said that these are its keys.
    confirmed: Option<UnixTime>,
    /// Too old to be believed.
    withdrawn: bool,
    /// The last visit failed.
    failing: bool,
}

/// How visits to the source went.
#[derive(Default)]
pub struct Counts {
    /// Other keys than before.
    pub changed: AtomicU64,
    /// The same keys.
    pub unchanged: AtomicU64,
    pub failed: AtomicU64,
}

impl Source {
    pub fn new(policy: Issuer, settings: KeySource) -> Self {
        let refetch = match &settings {
            KeySource::File(_) => None,
            KeySource::Remote(remote) => Some(Arc::new(Refetch::new(remote.refetch_cooldown))),
        };
        let state = State { keys: Arc::default(), confirmed: None, withdrawn: false, failing: false };
        Source { policy: Arc::new(policy), settings, counts: Counts::default(), refetch, state: Mutex::new(state) }
    }

    /// A source of the same keys under another policy begins with the keys that are here.
    pub fn begin_like(&self, other: &Source) {
        let other = other.state();
        let mut state = self.state();
        (state.keys, state.confirmed) = (other.keys.clone(), other.confirmed);
    }

    /// Does it bring the same keys, whatever the tokens have to say besides?
    pub fn has_same_keys(&self, other: &Source) -> bool {
        let name = |source: &Source| (source.policy.issuer.clone(), source.policy.algorithms.clone());
        self.settings == other.settings && name(self) == name(other)
    }

    /// The issuer with the keys that are in force.
    pub(super) fn trusted(&self) -> TrustedIssuer {
        let state = self.state();
        let keys = if state.withdrawn { Arc::default() } else { state.keys.clone() };
        TrustedIssuer { policy: self.policy.clone(), keys }
    }

    /// The source has these keys. Answers whether other keys are in force now.
    pub fn confirm(&self, keys: KeySet, now: UnixTime) -> bool {
        let mut state = self.state();
        let same = state.keys.has_all(&keys) && keys.has_all(&state.keys) && !keys.is_empty();
        let was_withdrawn = std::mem::take(&mut state.withdrawn);
        (state.confirmed, state.failing) = (Some(now), false);
        if same {
            self.counts.unchanged.fetch_add(1, Ordering::Relaxed);
            return was_withdrawn;
        }
        let kids: Vec<_> = keys.keys().iter().map(|key| key.kid.as_deref().unwrap_or("(none)")).collect();
        tracing::info!(issuer = %self.policy.issuer, ?kids, "other keys are in force");
        state.keys = Arc::new(keys);
        self.counts.changed.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The source says that nothing has changed. Answers as [`Source::confirm`].
    pub(super) fn confirm_same(&self, now: UnixTime) -> bool {
        let mut state = self.state();
        (state.confirmed, state.failing) = (Some(now), false);
        self.counts.unchanged.fetch_add(1, Ordering::Relaxed);
        std::mem::take(&mut state.withdrawn)
    }

    /// A visit was in vain: the keys that are here stay.
    pub(super) fn fail(&self, fault: &str) {
        let mut state = self.state();
        state.failing = true;
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let keys = state.keys.keys().len();
        tracing::warn!(issuer = %self.policy.issuer, fault, keys_kept = keys, "no keys could be had");
    }

    /// Takes stale keys out of force, where that was asked for. Answers whether it did.
    pub(super) fn withdraw_if_stale(&self, now: UnixTime) -> bool {
        let refuses = self.remote().is_some_and(|remote| remote.on_stale == OnStale::Reject);
        if !refuses || !self.is_stale(now) {
            return false;
        }
        let withdrawn = !std::mem::replace(&mut self.state().withdrawn, true);
        if withdrawn {
            tracing::error!(issuer = %self.policy.issuer, "the keys are stale and no longer in force");
        }
        withdrawn
    }

    /// For a token whose key is unknown. Without a source that can be asked, what is here is all there is.
    pub async fn ask(&self, now: UnixTime) -> RefetchOutcome {
        match &self.refetch {
            Some(refetch) => refetch.ask(now).await,
            None => RefetchOutcome::Lately,
        }
    }

    /// The source shall be asked without delay, for the operator's sake: no cool-down.
    pub fn ask_soon(&self) {
        if let Some(refetch) = &self.refetch {
            refetch.wish();
        }
    }

    /// Has the source failed to say which keys it has? Then a key that is not here may still be good.
    pub fn is_failing(&self) -> bool {
        self.state().failing
    }

    /// How long ago the source confirmed its keys; `None` before the first.
    pub fn age(&self, now: UnixTime) -> Option<Duration> {
        self.state().confirmed.map(|confirmed| now.since(confirmed))
    }

    pub fn has_keys(&self) -> bool {
        !self.state().keys.is_empty()
    }

    fn is_stale(&self, now: UnixTime) -> bool {
        self.remote().is_some_and(|remote| self.age(now).is_some_and(|age| age > remote.max_age))
    }

    /// Why the gateway is not ready, as far as this issuer goes.
    pub fn unready(&self, now: UnixTime) -> Option<String> {
        let issuer = &self.policy.issuer;
        if !self.has_keys() {
            let waits = self.remote().is_none_or(|remote| remote.startup == Startup::Wait);
            return waits.then(|| format!("issuer {issuer}: no keys yet"));
        }
        let age = self.age(now).unwrap_or_default().as_secs();
        self.is_stale(now).then(|| format!("issuer {issuer}: its keys were confirmed {age}s ago"))
    }

    /// Does the start wait for the first keys?
    pub fn is_waited_for(&self) -> bool {
        !self.has_keys() && self.remote().is_some_and(|remote| remote.startup == Startup::Wait)
    }

    pub fn remote(&self) -> Option<&Remote> {
        match &self.settings {
            KeySource::Remote(remote) => Some(&**remote),
            KeySource::File(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

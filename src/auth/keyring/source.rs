//! The state of one issuer's keys: the last good set, when it was confirmed, and how the last fetch went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::document::Document;
use super::error::KeySourceError;
use super::refetch::{Refetch, RefetchOutcome, unless_failing};
use super::settings::{KeySource, OnStale, Remote, Startup};
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject, with_causes};

/// How much of an error is kept for operators, in characters: it can quote the response of an issuer.
const MAX_ERROR: usize = 1_000;

/// One task ([`watch`](super::watch)) keeps it up to date. All workers read it.
pub struct Source {
    pub policy: Arc<Issuer>,
    pub settings: KeySource,
    pub counts: Counts,
    pub(super) refetch: Option<Arc<Refetch>>,
    state: Mutex<SourceState>,
}

#[derive(Clone, Default)]
struct SourceState {
    /// The last good set. Empty before the first one.
    keys: Arc<KeySet>,
    /// When the source last confirmed that these are its keys.
    confirmed: Option<Uptime>,
    /// The keys are those of the source that a reload has replaced, because this one has not answered yet.
    is_inherited: bool,
    /// The keys are stale and not in force.
    is_withdrawn: bool,
    last_attempt: Option<Uptime>,
    /// Why the last fetch failed. `None` if it succeeded.
    last_error: Option<String>,
    /// The last discovery document. `None` without discovery, and before the first one.
    document: Option<Arc<Document>>,
}

/// How a source is, for operators.
pub struct Status {
    /// How many keys the gateway has of it, also if they are stale.
    pub keys: usize,
    /// How long ago the source confirmed its keys. `None` before the first time.
    pub age: Option<Duration>,
    pub is_stale: bool,
    /// How long ago the last attempt ended.
    pub since_attempt: Option<Duration>,
    pub last_error: Option<String>,
}

impl Status {
    pub fn name(&self) -> &'static str {
        match self {
            Status { keys: 0, .. } => "missing",
            Status { is_stale: true, .. } => "stale",
            Status { last_error: Some(_), .. } => "failing",
            _ => "current",
        }
    }
}

impl SourceState {
    /// What stays of it for another source of the same issuer, until that has answered.
    fn of(self, policy: &Issuer) -> Self {
        SourceState {
            keys: Arc::new(self.keys.only(&policy.algorithms)),
            is_inherited: true,
            last_attempt: None,
            last_error: None,
            ..self
        }
    }

    /// Returns true if stale keys come into force again.
    fn succeeded(&mut self, issuer: &str, now: Uptime) -> bool {
        let was_withdrawn = std::mem::take(&mut self.is_withdrawn);
        let has_failed = self.last_error.take().is_some();
        (self.confirmed, self.last_attempt) = (Some(now), Some(now));
        self.is_inherited = false;
        match (was_withdrawn, has_failed) {
            (true, _) => tracing::info!(issuer, "the keys of an issuer are known again: its tokens are accepted"),
            (false, true) => tracing::info!(issuer, "the keys of an issuer can be read again"),
            (false, false) => {}
        }
        was_withdrawn
    }
}

/// The outcomes of all fetches.
#[derive(Default)]
pub struct Counts {
    /// The keys were other ones than before.
    pub changed: AtomicU64,
    pub unchanged: AtomicU64,
    pub failed: AtomicU64,
}

impl Source {
    pub fn new(policy: Issuer, settings: KeySource) -> Self {
        let refetch = match &settings {
            KeySource::File(_) | KeySource::None => None,
            KeySource::Remote(remote) => Some(Arc::new(Refetch::new(remote.refetch_cooldown))),
        };
        Source { policy: Arc::new(policy), settings, counts: Counts::default(), refetch, state: Mutex::default() }
    }

    /// Starts with the keys of `before`, the source of the same issuer before a reload. They stay until this source has
    /// answered once: a mistyped URL must not reject every token of the issuer.
    pub fn inherit_keys(&self, before: &Source) {
        if self.settings == KeySource::None {
            return;
        }
        let inherited = before.state.lock().clone();
        *self.state.lock() = if self.has_same_keys(before) { inherited } else { inherited.of(&self.policy) };
    }

    /// Keeps what discovery found. The last good document stays if a later one cannot be fetched.
    pub(super) fn keep_document(&self, document: Document) {
        self.state.lock().document = Some(Arc::new(document));
    }

    pub fn document(&self) -> Option<Arc<Document>> {
        self.state.lock().document.clone()
    }

    /// Returns true if both have the same keys: the same issuer, algorithms and location. The rest of the policy may
    /// differ.
    pub fn has_same_keys(&self, other: &Source) -> bool {
        let name = |source: &Source| (source.policy.issuer.clone(), source.policy.algorithms.clone());
        self.settings == other.settings && name(self) == name(other)
    }

    /// The issuer with the keys that are in force.
    pub fn trusted(&self) -> TrustedIssuer {
        let state = self.state.lock();
        let keys = if state.is_withdrawn { Arc::default() } else { state.keys.clone() };
        TrustedIssuer { policy: self.policy.clone(), keys }
    }

    /// Records the keys of a successful fetch. Returns true if the keys in force change.
    pub fn confirm(&self, keys: KeySet, now: Uptime) -> bool {
        let mut state = self.state.lock();
        let same = state.keys.has_all(&keys) && keys.has_all(&state.keys) && !keys.is_empty();
        let was_withdrawn = state.succeeded(&self.policy.issuer, now);
        if same {
            self.counts.unchanged.fetch_add(1, Ordering::Relaxed);
            return was_withdrawn;
        }
        let kids: Vec<_> = keys.keys().iter().map(|key| key.kid.as_deref().unwrap_or("(none)")).collect();
        tracing::info!(issuer = %self.policy.issuer, ?kids, "the keys of an issuer changed");
        state.keys = Arc::new(keys);
        self.counts.changed.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Records a fetch that found the keys unchanged. Returns true if the keys in force change.
    pub(super) fn confirm_unchanged(&self, now: Uptime) -> bool {
        let mut state = self.state.lock();
        self.counts.unchanged.fetch_add(1, Ordering::Relaxed);
        state.succeeded(&self.policy.issuer, now)
    }

    /// Records a failed fetch. The current keys stay in force. The journal has the first of equal failures.
    pub(super) fn record_failure(&self, error: &KeySourceError, now: Uptime) {
        let issuer = &self.policy.issuer;
        let message = with_causes(error);
        let mut state = self.state.lock();
        let kept: String = message.chars().take(MAX_ERROR).collect();
        let is_known = state.last_error.as_ref() == Some(&kept);
        (state.last_attempt, state.last_error) = (Some(now), Some(kept));
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        if is_known {
            return;
        }
        let keys = state.keys.keys().len();
        if error.is_lax_file() {
            // Another user may be about to forge tokens, so this is more than a warning.
            tracing::error!(%issuer, error = message, keys_kept = keys, "rejected the key file of an issuer");
        } else {
            tracing::warn!(%issuer, error = message, keys_kept = keys, "failed to get the keys of an issuer");
        }
    }

    /// Takes stale keys out of force if `on_stale` says so. Returns true if the keys in force change.
    pub(super) fn withdraw_if_stale(&self, now: Uptime) -> bool {
        let rejects = self.remote().is_some_and(|remote| remote.on_stale == OnStale::Reject);
        if !rejects || !self.is_stale(now) {
            return false;
        }
        let changes = !std::mem::replace(&mut self.state.lock().is_withdrawn, true);
        if changes {
            tracing::error!(issuer = %self.policy.issuer, "the keys of an issuer are stale: its tokens get 503");
        }
        changes
    }

    /// Waits for a refetch because of a token with an unknown key. Keys from a file are never refetched: they are all
    /// there is.
    pub async fn refetch(&self, now: Uptime) -> RefetchOutcome {
        match &self.refetch {
            Some(refetch) => refetch.wait(now).await,
            None => RefetchOutcome::CoolingDown,
        }
    }

    /// Has the keys fetched once, because something names a key that is not known. Then verify it again.
    ///
    /// # Errors
    /// 503 if the fetch takes too long: the key may be there.
    pub async fn refetch_unknown(&self, now: Uptime) -> Result<RefetchOutcome, Reject> {
        match self.refetch(now).await {
            RefetchOutcome::TimedOut => {
                Err(Reject::new(Reason::KeysUnavailable, "unknown key, and its issuer did not answer in time"))
            }
            outcome => Ok(outcome),
        }
    }

    /// What it means that the key is still unknown, or that something else is wrong.
    pub fn still_rejected(&self, still: Reject) -> Reject {
        unless_failing(still, self.is_failing())
    }

    /// Has the keys fetched now, without a cooldown: the operator reloads the configuration, or the issuer itself has
    /// sent a token with an unknown key.
    pub fn fetch_now(&self) {
        if let Some(refetch) = &self.refetch {
            refetch.request_now();
        }
    }

    /// Returns true if the last fetch failed. Then a token with an unknown key may still be valid.
    pub fn is_failing(&self) -> bool {
        self.state.lock().last_error.is_some()
    }

    pub fn status(&self, now: Uptime) -> Status {
        let age = self.age(now);
        let is_stale = self.is_stale(now);
        let state = self.state.lock();
        Status {
            keys: state.keys.keys().len(),
            age,
            is_stale,
            since_attempt: state.last_attempt.map(|at| now.since(at)),
            last_error: state.last_error.clone(),
        }
    }

    /// How long ago the source confirmed its keys. `None` before the first time.
    pub fn age(&self, now: Uptime) -> Option<Duration> {
        self.state.lock().confirmed.map(|confirmed| now.since(confirmed))
    }

    pub fn has_keys(&self) -> bool {
        !self.state.lock().keys.is_empty()
    }

    fn is_stale(&self, now: Uptime) -> bool {
        self.remote().is_some_and(|remote| self.age(now).is_some_and(|age| age > remote.max_age))
    }

    /// Why the gateway is not ready because of this issuer. `None` if it is.
    pub fn not_ready(&self, now: Uptime) -> Option<String> {
        let issuer = &self.policy.issuer;
        if self.settings == KeySource::None {
            return None;
        }
        if !self.has_keys() {
            let waits = self.remote().is_none_or(|remote| remote.startup == Startup::Wait);
            return waits.then(|| format!("issuer {issuer}: no keys yet"));
        }
        let age = self.age(now).unwrap_or_default().as_secs();
        self.is_stale(now).then(|| format!("issuer {issuer}: its keys were confirmed {age}s ago"))
    }

    /// Returns true if the start waits for the first keys of this issuer.
    pub fn blocks_startup(&self) -> bool {
        !self.has_keys() && self.remote().is_some_and(|remote| remote.startup == Startup::Wait)
    }

    /// Returns true if a reload waits for this source: also for the end of its first fetch, whatever it finds.
    pub fn blocks_reload(&self) -> bool {
        self.blocks_startup() || self.remote().is_some() && self.state.lock().last_attempt.is_none()
    }

    /// Why this source, which a reload has put in force, has no keys of its own yet. `None` if it has.
    pub fn untried(&self) -> Option<String> {
        self.remote()?;
        let state = self.state.lock();
        let consequence = match (state.is_inherited, state.keys.is_empty()) {
            (true, false) => "its keys from before the reload stay in use",
            (_, true) => "its tokens get 503",
            (false, false) => return None,
        };
        let error = state.last_error.as_deref().unwrap_or("no answer yet");
        Some(format!("{}: {error}; {consequence} until the fetch succeeds", self.policy.issuer))
    }

    /// Why the last fetch failed. `None` if it succeeded.
    pub fn last_error(&self) -> Option<String> {
        self.state.lock().last_error.clone()
    }

    pub fn remote(&self) -> Option<&Remote> {
        match &self.settings {
            KeySource::Remote(remote) => Some(&**remote),
            KeySource::File(_) | KeySource::None => None,
        }
    }
}

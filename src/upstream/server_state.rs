//! How one server stands: what all workers see of it, and what the control thread and failing requests change.
//!
//! It belongs to the server and not to a configuration, so that a reload finds it as it was. Requests read one number.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::balance::FULL;
use super::health;
use super::outlier::{self, Change, State};

pub(super) struct ServerState {
    upstream: String,
    server: String,
    /// What [`State::share`] said last. The control thread keeps it right, so that no request reads a clock for it.
    share: AtomicU16,
    /// Requests in a row that failed.
    failures: AtomicU32,
    /// The last of them in its body: heads alone make up for it no more.
    breaks_off: AtomicBool,
    state: Mutex<State>,
    ejections: AtomicU64,
    /// Requests that went on to another connection or server.
    pub(super) retries: AtomicU64,
    pub(super) failed_checks: AtomicU64,
}

impl ServerState {
    pub(super) fn new(upstream: &str, server: String) -> Self {
        ServerState {
            upstream: upstream.to_owned(),
            server,
            share: AtomicU16::new(FULL),
            failures: AtomicU32::new(0),
            breaks_off: AtomicBool::new(false),
            state: Mutex::default(),
            ejections: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            failed_checks: AtomicU64::new(0),
        }
    }

    /// Of [`FULL`].
    pub(super) fn share(&self) -> u16 {
        self.share.load(Ordering::Relaxed)
    }

    /// So far. Beside the share, so that a request finds both in one line of memory.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    pub(super) fn in_words(&self) -> &'static str {
        self.state().in_words()
    }

    /// The head of an answer came.
    pub(super) fn answered(&self) {
        // Written only if it has to be: otherwise every core would own this line in turn.
        if self.failures.load(Ordering::Relaxed) != 0 && !self.breaks_off.load(Ordering::Relaxed) {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// All of an answer came.
    pub(super) fn answered_whole(&self) {
        if self.breaks_off.load(Ordering::Relaxed) {
            self.breaks_off.store(false, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A request failed, and the server is to blame. `ejections` there were when it was chosen: what began before the last one
    /// says nothing about it now.
    pub(super) fn failed(&self, settings: &outlier::Settings, ejections: u64, why: &str, now: Instant) {
        if ejections == self.ejections() {
            self.count_failure(settings, why, now);
        }
    }

    /// As [`ServerState::failed`], after the head of an answer.
    pub(super) fn broke_off(&self, settings: &outlier::Settings, ejections: u64, why: &str, now: Instant) {
        if ejections == self.ejections() {
            self.breaks_off.store(true, Ordering::Relaxed);
            self.count_failure(settings, why, now);
        }
    }

    fn count_failure(&self, settings: &outlier::Settings, why: &str, now: Instant) {
        let in_a_row = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        // One that just came back is on probation.
        let enough = if self.share() == FULL { settings.consecutive_failures } else { 1 };
        if settings.consecutive_failures == 0 || in_a_row < enough {
            return;
        }
        let mut state = self.state();
        let Some(time) = state.eject(settings, now) else { return };
        self.share.store(0, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        self.ejections.fetch_add(1, Ordering::Relaxed);
        let (upstream, server) = (&self.upstream, &self.server);
        tracing::warn!(upstream, server, "left out for {}ms: {why}", time.as_millis());
    }

    /// A health check is over. `Err` says what was wrong.
    pub(super) fn checked(
        &self,
        outcome: Result<(), String>,
        (health, ejection): (&health::Settings, &outlier::Settings),
        now: Instant,
    ) {
        let mut state = self.state();
        let change = state.checked(outcome.is_ok(), health, now);
        self.share.store(state.share(ejection, now), Ordering::Relaxed);
        drop(state);
        let why = outcome.err().unwrap_or_default();
        if !why.is_empty() {
            self.failed_checks.fetch_add(1, Ordering::Relaxed);
        }
        self.tell(change, &why);
    }

    /// Time has passed.
    pub(super) fn advance(&self, settings: &outlier::Settings, now: Instant) {
        if self.share() == FULL {
            return;
        }
        let mut state = self.state();
        let change = state.advance(settings, now);
        self.share.store(state.share(settings, now), Ordering::Relaxed);
        drop(state);
        self.tell(change, "");
    }

    /// From now on, nobody checks its health.
    pub(super) fn forget_checks(&self, settings: &outlier::Settings, now: Instant) {
        let mut state = self.state();
        if state.is_out() {
            state.forget_checks(now);
            self.share.store(state.share(settings, now), Ordering::Relaxed);
        }
    }

    fn tell(&self, change: Option<Change>, why: &str) {
        let (upstream, server) = (&self.upstream, &self.server);
        match change {
            Some(Change::Left) => tracing::warn!(upstream, server, "left out, as its health checks fail: {why}"),
            Some(Change::Returned) => tracing::info!(upstream, server, "takes requests again"),
            None => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn failures_count_only_in_a_row_and_one_is_enough_after_a_return() {
        let second = Duration::from_secs(1);
        let settings = outlier::Settings {
            consecutive_failures: 3,
            base_time: second,
            max_time: second * 60,
            slow_start: second * 10,
        };
        let (standing, now) = (ServerState::new("backend", "a:80".into()), Instant::now());
        for _ in 0..5 {
            standing.count_failure(&settings, "refused", now);
            standing.count_failure(&settings, "refused", now);
            standing.answered();
        }
        assert_eq!((standing.share(), standing.ejections()), (FULL, 0));
        for _ in 0..8 {
            standing.count_failure(&settings, "refused", now);
        }
        assert_eq!((standing.share(), standing.ejections()), (0, 1), "once for all that fail at once");
        standing.advance(&settings, now + second);
        assert_eq!((standing.share(), standing.in_words()), (50, "returning"));
        standing.answered();
        standing.count_failure(&settings, "refused", now + second * 2);
        assert_eq!((standing.share(), standing.ejections()), (0, 2));
        let never = outlier::Settings { consecutive_failures: 0, ..settings };
        let other = ServerState::new("backend", "b:80".into());
        (0..100).for_each(|_| other.count_failure(&never, "refused", now));
        assert_eq!(other.share(), FULL);
    }
}

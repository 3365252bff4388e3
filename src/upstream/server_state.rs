//! The state of one server that all workers share. The control thread and failed requests change it.
//!
//! It belongs to the server, not to a configuration, so a reload keeps it. A request reads two numbers of it, without a
//! lock.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::balance::FULL_WEIGHT;
use super::check_schedule::CheckSchedule;
use super::health::CheckError;
use super::outlier::{Rotation, RotationChange};
use super::settings::{EjectionSettings, HealthCheckSettings};

pub(super) struct ServerState {
    upstream: String,
    server: String,
    /// The last [`Rotation::share`]. The control thread updates it, so that requests need not read a clock.
    share: AtomicU16,
    /// Consecutive failed requests.
    failures: AtomicU32,
    /// Whether the last failure was in a response body. Then only a complete response resets `failures`, not a head.
    has_broken_body: AtomicBool,
    rotation: Mutex<Rotation>,
    schedule: Mutex<CheckSchedule>,
    ejections: AtomicU64,
    /// Requests that were sent again, on another connection or to another server.
    pub(super) retries: AtomicU64,
    pub(super) failed_checks: AtomicU64,
    /// Responses that broke off after their head.
    pub(super) broken_responses: AtomicU64,
}

impl ServerState {
    pub(super) fn new(upstream: &str, server: String) -> Self {
        ServerState {
            upstream: upstream.to_owned(),
            server,
            share: AtomicU16::new(FULL_WEIGHT),
            failures: AtomicU32::new(0),
            has_broken_body: AtomicBool::new(false),
            rotation: Mutex::default(),
            schedule: Mutex::default(),
            ejections: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            failed_checks: AtomicU64::new(0),
            broken_responses: AtomicU64::new(0),
        }
    }

    /// The share of the requests that the server gets, of [`FULL_WEIGHT`].
    pub(super) fn share(&self) -> u16 {
        self.share.load(Ordering::Relaxed)
    }

    /// The number of ejections so far.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// The state as operators see it.
    pub(super) fn name(&self) -> &'static str {
        self.rotation.lock().state()
    }

    /// Records the head of a response.
    pub(super) fn record_head(&self) {
        // Written only if it changes: otherwise this cache line would move from core to core with every request.
        if self.failures.load(Ordering::Relaxed) != 0 && !self.has_broken_body.load(Ordering::Relaxed) {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a complete response.
    pub(super) fn record_complete(&self) {
        if self.has_broken_body.load(Ordering::Relaxed) {
            self.has_broken_body.store(false, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failed request that the server caused. `ejections`: how many there were when the server was chosen. A
    /// request from before the last ejection says nothing about the server now.
    pub(super) fn record_failure(&self, settings: &EjectionSettings, ejections: u64, cause: &str, now: Instant) {
        if ejections == self.ejections() {
            self.count_failure(settings, cause, now);
        }
    }

    /// As [`ServerState::record_failure`], for a failure after the head of a response.
    pub(super) fn record_broken_body(&self, settings: &EjectionSettings, ejections: u64, cause: &str, now: Instant) {
        if ejections == self.ejections() {
            self.has_broken_body.store(true, Ordering::Relaxed);
            self.count_failure(settings, cause, now);
        }
    }

    fn count_failure(&self, settings: &EjectionSettings, cause: &str, now: Instant) {
        let in_a_row = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        // During slow start, one failure is enough.
        let threshold = if self.share() == FULL_WEIGHT { settings.consecutive_failures } else { 1 };
        if settings.consecutive_failures == 0 || in_a_row < threshold {
            return;
        }
        let mut rotation = self.rotation.lock();
        let Some(time) = rotation.eject(settings, now) else { return };
        self.share.store(0, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        self.ejections.fetch_add(1, Ordering::Relaxed);
        let upstream = &self.upstream;
        let server = &self.server;
        tracing::warn!(upstream, server, "ejected for {}ms: {cause}", time.as_millis());
    }

    /// Records the result of a health check.
    pub(super) fn record_check(
        &self,
        result: Result<(), CheckError>,
        health_check: &HealthCheckSettings,
        ejection: &EjectionSettings,
        now: Instant,
    ) {
        self.schedule.lock().end();
        let mut rotation = self.rotation.lock();
        let change = rotation.record_check(result.is_ok(), health_check, now);
        self.share.store(rotation.settle(ejection, now), Ordering::Relaxed);
        drop(rotation);
        let error = result.err();
        if error.is_some() {
            self.failed_checks.fetch_add(1, Ordering::Relaxed);
        }
        self.log(change, error.as_ref());
    }

    /// Ends an ejection or a slow start when its time is over.
    pub(super) fn advance(&self, settings: &EjectionSettings, now: Instant) {
        if self.share() == FULL_WEIGHT {
            return;
        }
        let mut rotation = self.rotation.lock();
        let change = rotation.advance(settings, now);
        self.share.store(rotation.settle(settings, now), Ordering::Relaxed);
        drop(rotation);
        self.log(change, None);
    }

    /// When the next health check begins. A reload that does not change `settings` does not change it.
    pub(super) fn next_check(&self, settings: &HealthCheckSettings, now: Instant) -> Instant {
        self.schedule.lock().next(settings, now)
    }

    /// Begins a health check, and returns when it must have ended. A reload can end the task of a check before its
    /// result; the check that repeats it then has only the rest of its time. Otherwise a server that hangs would never
    /// fail a check while the configuration is reloaded often.
    pub(super) fn begin_check(&self, settings: &HealthCheckSettings, now: Instant) -> Instant {
        let mut schedule = self.schedule.lock();
        if schedule.begin(settings, now) {
            self.rotation.lock().restart_series();
        }
        schedule.deadline(settings, now)
    }

    /// Forgets the results of health checks, because the configuration has none any more.
    pub(super) fn forget_checks(&self, settings: &EjectionSettings, now: Instant) {
        *self.schedule.lock() = CheckSchedule::default();
        let mut rotation = self.rotation.lock();
        if rotation.is_out() {
            rotation.forget_checks(now);
            self.share.store(rotation.settle(settings, now), Ordering::Relaxed);
        }
    }

    fn log(&self, change: Option<RotationChange>, error: Option<&CheckError>) {
        let upstream = &self.upstream;
        let server = &self.server;
        match (change, error) {
            (Some(RotationChange::Removed), Some(error)) => {
                tracing::warn!(upstream, server, "unhealthy, gets no requests: {error}");
            }
            (Some(RotationChange::Removed), None) => tracing::warn!(upstream, server, "unhealthy, gets no requests"),
            (Some(RotationChange::Returned), _) => tracing::info!(upstream, server, "gets requests again"),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn consecutive_failures_eject_and_one_is_enough_in_slow_start() {
        let second = Duration::from_secs(1);
        let settings = EjectionSettings {
            consecutive_failures: 3,
            base_time: second,
            max_time: second * 60,
            slow_start: second * 10,
        };
        let state = ServerState::new("backend", "a:80".into());
        let now = Instant::now();
        for _ in 0..5 {
            state.count_failure(&settings, "refused", now);
            state.count_failure(&settings, "refused", now);
            state.record_head();
        }
        assert_eq!((state.share(), state.ejections()), (FULL_WEIGHT, 0));
        for _ in 0..8 {
            state.count_failure(&settings, "refused", now);
        }
        assert_eq!((state.share(), state.ejections()), (0, 1), "one ejection for all that fail at once");
        state.advance(&settings, now + second);
        assert_eq!((state.share(), state.name()), (50, "returning"));
        state.record_head();
        state.count_failure(&settings, "refused", now + second * 2);
        assert_eq!((state.share(), state.ejections()), (0, 2));
        let never = EjectionSettings { consecutive_failures: 0, ..settings };
        let other = ServerState::new("backend", "b:80".into());
        (0..100).for_each(|_| other.count_failure(&never, "refused", now));
        assert_eq!(other.share(), FULL_WEIGHT);
    }

    /// A health check can end a slow start between two calls of `advance`, and a slow start can have no length.
    #[test]
    fn a_server_with_its_full_share_is_in_rotation() {
        let second = Duration::from_secs(1);
        let health_check = HealthCheckSettings {
            path: "/".into(),
            interval: second,
            timeout: second,
            healthy_threshold: 1,
            unhealthy_threshold: 1,
            status: Vec::new(),
        };
        for slow_start in [second * 10, Duration::ZERO] {
            let settings =
                EjectionSettings { consecutive_failures: 3, base_time: second, max_time: second * 60, slow_start };
            let state = ServerState::new("backend", "a:80".into());
            let now = Instant::now();
            state.record_check(Err(CheckError::Timeout(second)), &health_check, &settings, now);
            assert_eq!((state.share(), state.name()), (0, "unhealthy"));
            state.record_check(Ok(()), &health_check, &settings, now + second);
            state.record_check(Ok(()), &health_check, &settings, now + second + slow_start);
            assert_eq!((state.share(), state.name()), (FULL_WEIGHT, "in"));
        }
    }
}

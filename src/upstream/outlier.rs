//! Outlier detection: a server is taken out of rotation, and returns. Pure: every decision takes `now`.
//!
//! Two things take a server out of rotation. Failed health checks do, until enough checks pass. Consecutive failed
//! requests do too, for a time that doubles if the server fails again soon after its return: that is an ejection. In
//! both cases the server returns by a slow start: its share of the requests rises, and one failed request ejects it
//! again.

use std::time::{Duration, Instant};

use super::balance::FULL_WEIGHT;
use super::settings::{EjectionSettings, HealthCheckSettings};

/// The share at the beginning of a slow start. It is low, so that a server that still fails costs few requests.
const FIRST_SHARE: u16 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RotationChange {
    Removed,
    Returned,
}

/// Whether a server is in rotation, and why not.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    ejected_until: Option<Instant>,
    /// Whether its health checks fail.
    is_unhealthy: bool,
    /// Consecutive health checks with the opposite result.
    opposite_checks: u32,
    /// When the slow start began; `None` after it.
    slow_start_since: Option<Instant>,
    last_return: Option<Instant>,
    /// Consecutive ejections, each soon after the return from the one before.
    ejections_in_a_row: u32,
}

impl Rotation {
    /// Returns true if the server is out of rotation.
    pub(super) fn is_out(&self) -> bool {
        self.is_unhealthy || self.ejected_until.is_some()
    }

    /// The state as operators see it.
    pub(super) fn state(&self) -> &'static str {
        match self {
            Rotation { is_unhealthy: true, .. } => "unhealthy",
            Rotation { ejected_until: Some(_), .. } => "ejected",
            Rotation { slow_start_since: Some(_), .. } => "returning",
            _ => "in",
        }
    }

    /// Ejects the server and returns for how long. `None` if it is out of rotation already.
    pub(super) fn eject(&mut self, settings: &EjectionSettings, now: Instant) -> Option<Duration> {
        if self.is_out() {
            return None;
        }
        let is_soon = self.last_return.is_some_and(|back| now.saturating_duration_since(back) < settings.max_time);
        self.ejections_in_a_row = if is_soon { self.ejections_in_a_row.saturating_add(1) } else { 1 };
        let doubled = settings.base_time.saturating_mul(1 << (self.ejections_in_a_row - 1).min(20));
        let time = doubled.min(settings.max_time);
        self.ejected_until = Some(now + time);
        self.slow_start_since = None;
        Some(time)
    }

    /// Counts the result of a health check.
    pub(super) fn record_check(
        &mut self,
        has_passed: bool,
        settings: &HealthCheckSettings,
        now: Instant,
    ) -> Option<RotationChange> {
        if has_passed != self.is_unhealthy {
            self.opposite_checks = 0;
            return None;
        }
        self.opposite_checks += 1;
        let threshold = if self.is_unhealthy { settings.healthy_threshold } else { settings.unhealthy_threshold };
        if self.opposite_checks < threshold {
            return None;
        }
        let was_out = self.is_out();
        self.is_unhealthy = !self.is_unhealthy;
        self.opposite_checks = 0;
        match (was_out, self.is_out()) {
            (false, true) => {
                self.slow_start_since = None;
                Some(RotationChange::Removed)
            }
            (true, false) => Some(self.start_slowly(now)),
            _ => None,
        }
    }

    /// Forgets the results of health checks, because there are none any more.
    pub(super) fn forget_checks(&mut self, now: Instant) {
        (self.is_unhealthy, self.opposite_checks) = (false, 0);
        if !self.is_out() {
            self.start_slowly(now);
        }
    }

    /// Ends an ejection or a slow start when its time is over.
    pub(super) fn advance(&mut self, settings: &EjectionSettings, now: Instant) -> Option<RotationChange> {
        if self.ejected_until.is_some_and(|until| until <= now) {
            self.ejected_until = None;
            return (!self.is_out()).then(|| self.start_slowly(now));
        }
        self.settle(settings, now);
        None
    }

    /// Forgets the results of the current series of health checks: the next ones have other settings.
    pub(super) fn restart_series(&mut self) {
        self.opposite_checks = 0;
    }

    /// As [`Rotation::share`]. Also ends a slow start when its time is over, so that the state and the share agree.
    pub(super) fn settle(&mut self, settings: &EjectionSettings, now: Instant) -> u16 {
        let share = self.share(settings, now);
        if share == FULL_WEIGHT {
            self.slow_start_since = None;
        }
        share
    }

    fn start_slowly(&mut self, now: Instant) -> RotationChange {
        (self.slow_start_since, self.last_return) = (Some(now), Some(now));
        RotationChange::Returned
    }

    /// The share of the requests that the server gets, of [`FULL_WEIGHT`].
    pub(super) fn share(&self, settings: &EjectionSettings, now: Instant) -> u16 {
        if self.is_out() {
            return 0;
        }
        let Some(since) = self.slow_start_since else { return FULL_WEIGHT };
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= settings.slow_start {
            return FULL_WEIGHT;
        }
        let part = elapsed.as_secs_f64() / settings.slow_start.as_secs_f64();
        ((part * f64::from(FULL_WEIGHT)) as u16).clamp(FIRST_SHARE, FULL_WEIGHT - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn settings() -> EjectionSettings {
        EjectionSettings {
            consecutive_failures: 3,
            base_time: SECOND * 10,
            max_time: SECOND * 60,
            slow_start: SECOND * 10,
        }
    }

    fn health_check() -> HealthCheckSettings {
        HealthCheckSettings {
            path: "/".into(),
            interval: SECOND,
            timeout: SECOND,
            healthy_threshold: 2,
            unhealthy_threshold: 3,
            status: Vec::new(),
        }
    }

    #[test]
    fn an_ejection_ends_and_the_share_rises() {
        let settings = settings();
        let start = Instant::now();
        let mut rotation = Rotation::default();
        assert_eq!(rotation.share(&settings, start), FULL_WEIGHT);
        assert_eq!(rotation.eject(&settings, start), Some(SECOND * 10));
        assert_eq!(rotation.eject(&settings, start), None, "it is ejected already");
        assert_eq!((rotation.share(&settings, start), rotation.state()), (0, "ejected"));
        assert_eq!(rotation.advance(&settings, start + SECOND * 9), None);
        let back = start + SECOND * 10;
        assert_eq!(rotation.advance(&settings, back), Some(RotationChange::Returned));
        let shares: Vec<u16> = (0..=10).map(|second| rotation.share(&settings, back + SECOND * second)).collect();
        assert_eq!(shares, [50, 100, 200, 300, 400, 500, 600, 700, 800, 900, FULL_WEIGHT]);
        assert_eq!((rotation.advance(&settings, back + SECOND), rotation.state()), (None, "returning"));
        assert_eq!((rotation.advance(&settings, back + SECOND * 10), rotation.state()), (None, "in"));
    }

    #[test]
    fn the_ejection_time_doubles_up_to_the_maximum() {
        let settings = settings();
        let mut rotation = Rotation::default();
        let mut now = Instant::now();
        for seconds in [10, 20, 40, 60, 60] {
            let time = rotation.eject(&settings, now).expect("in rotation");
            assert_eq!(time, SECOND * seconds);
            now += time;
            assert_eq!(rotation.advance(&settings, now), Some(RotationChange::Returned));
            now += SECOND * 59;
        }
        now += SECOND;
        assert_eq!(rotation.eject(&settings, now), Some(SECOND * 10), "after a minute without failure it starts again");
    }

    #[test]
    fn health_checks_remove_and_return_by_their_thresholds() {
        let health_check = health_check();
        let now = Instant::now();
        let mut rotation = Rotation::default();
        let run = |rotation: &mut Rotation, checks: &[bool]| {
            checks.iter().map(|passed| rotation.record_check(*passed, &health_check, now)).collect::<Vec<_>>()
        };
        assert_eq!(run(&mut rotation, &[false, false, true, false, false]), [None; 5], "three in a row");
        assert_eq!(run(&mut rotation, &[false]), [Some(RotationChange::Removed)]);
        assert_eq!((rotation.share(&settings(), now), rotation.state()), (0, "unhealthy"));
        assert_eq!(run(&mut rotation, &[false, true, false, true]), [None; 4], "two in a row");
        assert_eq!(run(&mut rotation, &[true]), [Some(RotationChange::Returned)]);
        assert_eq!((rotation.share(&settings(), now), rotation.state()), (FIRST_SHARE, "returning"));
    }

    #[test]
    fn a_server_out_for_two_reasons_returns_once() {
        let settings = settings();
        let health_check = health_check();
        let now = Instant::now();
        let mut rotation = Rotation::default();
        let removed = [None, None, Some(RotationChange::Removed)];
        assert!(rotation.eject(&settings, now).is_some());
        assert_eq!([false; 3].map(|passed| rotation.record_check(passed, &health_check, now)), [None; 3]);
        let later = now + SECOND * 10;
        assert_eq!(rotation.advance(&settings, later), None, "its checks still fail");
        assert_eq!(rotation.share(&settings, later), 0);
        let returned = [None, Some(RotationChange::Returned)];
        assert_eq!([true; 2].map(|passed| rotation.record_check(passed, &health_check, later)), returned);
        // The other way round.
        assert_eq!([false; 3].map(|passed| rotation.record_check(passed, &health_check, later)), removed);
        assert_eq!(rotation.eject(&settings, later), None);
        rotation.forget_checks(later);
        assert_eq!(rotation.state(), "returning");
    }
}

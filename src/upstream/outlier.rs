//! When a server is left out, for how long, and how it returns. Pure: every decision takes `now`.
//!
//! Two things take a server out: health checks that fail, until enough of them pass; and requests that fail one after the
//! other, for a time that doubles with each return that fails soon. Either way it returns slowly: its share of the requests
//! rises, and one failure on the way is enough to take it out again.

use std::time::{Duration, Instant};

use super::balance::FULL;
use super::health;

/// `[upstream.ejection]`
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// So many failures in a row; 0 for never.
    pub consecutive_failures: u32,
    /// How long it is left out, the first time.
    pub base_time: Duration,
    /// And at most.
    pub max_time: Duration,
    /// From its return to its whole share.
    pub slow_start: Duration,
}

/// The share that a return begins with: few enough requests that a server which is still ill costs little.
const FIRST: u16 = 50;

/// What became of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Left,
    Returned,
}

/// How a server stands.
#[derive(Debug, Default)]
pub(super) struct State {
    ejected_until: Option<Instant>,
    /// Its health checks fail.
    unwell: bool,
    /// Checks in a row that speak for the opposite.
    checks: u32,
    /// When its share began to rise; `None` once it is whole.
    rising: Option<Instant>,
    last_return: Option<Instant>,
    /// Ejections, each soon after the return from the one before.
    row: u32,
}

impl State {
    pub(super) fn is_out(&self) -> bool {
        self.unwell || self.ejected_until.is_some()
    }

    pub(super) fn in_words(&self) -> &'static str {
        match self {
            State { unwell: true, .. } => "unhealthy",
            State { ejected_until: Some(_), .. } => "ejected",
            State { rising: Some(_), .. } => "returning",
            _ => "in",
        }
    }

    /// Takes it out. Answers for how long, unless it is out already.
    pub(super) fn eject(&mut self, settings: &Settings, now: Instant) -> Option<Duration> {
        if self.is_out() {
            return None;
        }
        let is_soon = self.last_return.is_some_and(|back| now.saturating_duration_since(back) < settings.max_time);
        self.row = if is_soon { self.row.saturating_add(1) } else { 1 };
        let doubled = settings.base_time.saturating_mul(1 << (self.row - 1).min(20));
        let time = doubled.min(settings.max_time);
        self.ejected_until = Some(now + time);
        self.rising = None;
        Some(time)
    }

    /// One health check is over.
    pub(super) fn checked(&mut self, passed: bool, settings: &health::Settings, now: Instant) -> Option<Change> {
        if passed != self.unwell {
            self.checks = 0;
            return None;
        }
        self.checks += 1;
        let enough = if self.unwell { settings.healthy_threshold } else { settings.unhealthy_threshold };
        if self.checks < enough {
            return None;
        }
        let was_out = self.is_out();
        self.unwell = !self.unwell;
        self.checks = 0;
        match (was_out, self.is_out()) {
            (false, true) => {
                self.rising = None;
                Some(Change::Left)
            }
            (true, false) => Some(self.comes_back(now)),
            _ => None,
        }
    }

    /// Nobody checks its health any more.
    pub(super) fn forget_checks(&mut self, now: Instant) {
        (self.unwell, self.checks) = (false, 0);
        if !self.is_out() {
            self.comes_back(now);
        }
    }

    /// Time has passed: the end of an ejection, and of a slow start.
    pub(super) fn advance(&mut self, settings: &Settings, now: Instant) -> Option<Change> {
        if self.ejected_until.is_some_and(|until| until <= now) {
            self.ejected_until = None;
            return (!self.is_out()).then(|| self.comes_back(now));
        }
        if self.share(settings, now) == FULL {
            self.rising = None;
        }
        None
    }

    fn comes_back(&mut self, now: Instant) -> Change {
        (self.rising, self.last_return) = (Some(now), Some(now));
        Change::Returned
    }

    /// Of [`FULL`].
    pub(super) fn share(&self, settings: &Settings, now: Instant) -> u16 {
        if self.is_out() {
            return 0;
        }
        let Some(since) = self.rising else { return FULL };
        let risen = now.saturating_duration_since(since);
        if risen >= settings.slow_start {
            return FULL;
        }
        let part = risen.as_secs_f64() / settings.slow_start.as_secs_f64();
        ((part * f64::from(FULL)) as u16).clamp(FIRST, FULL - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn settings() -> Settings {
        Settings { consecutive_failures: 3, base_time: SECOND * 10, max_time: SECOND * 60, slow_start: SECOND * 10 }
    }

    fn health() -> health::Settings {
        health::Settings {
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
        let (settings, start) = (settings(), Instant::now());
        let mut state = State::default();
        assert_eq!(state.share(&settings, start), FULL);
        assert_eq!(state.eject(&settings, start), Some(SECOND * 10));
        assert_eq!(state.eject(&settings, start), None, "it is out already");
        assert_eq!((state.share(&settings, start), state.in_words()), (0, "ejected"));
        assert_eq!(state.advance(&settings, start + SECOND * 9), None);
        let back = start + SECOND * 10;
        assert_eq!(state.advance(&settings, back), Some(Change::Returned));
        let shares: Vec<u16> = (0..=10).map(|second| state.share(&settings, back + SECOND * second)).collect();
        assert_eq!(shares, [50, 100, 200, 300, 400, 500, 600, 700, 800, 900, FULL]);
        assert_eq!((state.advance(&settings, back + SECOND), state.in_words()), (None, "returning"));
        assert_eq!((state.advance(&settings, back + SECOND * 10), state.in_words()), (None, "in"));
    }

    #[test]
    fn who_fails_soon_again_is_out_for_longer_up_to_a_bound() {
        let settings = settings();
        let (mut state, mut now) = (State::default(), Instant::now());
        for seconds in [10, 20, 40, 60, 60] {
            let time = state.eject(&settings, now).expect("it is in");
            assert_eq!(time, SECOND * seconds);
            now += time;
            assert_eq!(state.advance(&settings, now), Some(Change::Returned));
            now += SECOND * 59;
        }
        now += SECOND;
        assert_eq!(state.eject(&settings, now), Some(SECOND * 10), "a good minute is a new beginning");
    }

    #[test]
    fn health_checks_take_it_out_and_bring_it_back_by_their_thresholds() {
        let (health, now) = (health(), Instant::now());
        let mut state = State::default();
        let run = |state: &mut State, checks: &[bool]| {
            checks.iter().map(|passed| state.checked(*passed, &health, now)).collect::<Vec<_>>()
        };
        assert_eq!(run(&mut state, &[false, false, true, false, false]), [None; 5], "three in a row");
        assert_eq!(run(&mut state, &[false]), [Some(Change::Left)]);
        assert_eq!((state.share(&settings(), now), state.in_words()), (0, "unhealthy"));
        assert_eq!(run(&mut state, &[false, true, false, true]), [None; 4], "two in a row");
        assert_eq!(run(&mut state, &[true]), [Some(Change::Returned)]);
        assert_eq!((state.share(&settings(), now), state.in_words()), (FIRST, "returning"));
    }

    #[test]
    fn who_is_out_for_two_reasons_leaves_once_and_returns_once() {
        let (settings, health, now) = (settings(), health(), Instant::now());
        let mut state = State::default();
        assert!(state.eject(&settings, now).is_some());
        assert_eq!([false; 3].map(|passed| state.checked(passed, &health, now)), [None; 3]);
        let later = now + SECOND * 10;
        assert_eq!(state.advance(&settings, later), None, "its checks still fail");
        assert_eq!(state.share(&settings, later), 0);
        assert_eq!([true; 2].map(|passed| state.checked(passed, &health, later)), [None, Some(Change::Returned)]);
        // The other way round.
        assert_eq!([false; 3].map(|passed| state.checked(passed, &health, later)), [None, None, Some(Change::Left)]);
        assert_eq!(state.eject(&settings, later), None);
        state.forget_checks(later);
        assert_eq!(state.in_words(), "returning");
    }
}

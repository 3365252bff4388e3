//! Steps forward of the system clock, and whether to believe them.
//!
//! A clock that is ahead for a moment does harm that stays: what was deleted because its time seemed over does not come
//! back. A step counts when it has lasted for [`CORRECTION_TIME`].

use std::time::Duration;

use super::boot_time::BootTime;
use super::clock::{CORRECTION_TIME, UnixTime};

/// Between two readings, the clock may gain or lose so much on the uptime without having been set.
const MAX_STEP: Duration = Duration::from_secs(1);

/// A time of the clock, and the uptime of this machine then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub time: UnixTime,
    pub uptime: BootTime,
}

impl Reading {
    /// The time of this clock now, unless it was set.
    pub fn at(self, uptime: BootTime) -> UnixTime {
        self.time + uptime.since(self.uptime)
    }

    /// Returns true if this clock was set forward before `later` was read.
    pub fn was_set_forward(self, later: Reading) -> bool {
        later.time.since(self.at(later.uptime)) > MAX_STEP
    }
}

/// A clock that is not believed.
#[derive(Default)]
pub struct Doubt {
    /// The first reading since it goes on as the uptime does.
    first: Option<Reading>,
}

impl Doubt {
    /// Returns true if a clock that was set forward, or that nothing confirms, is not believed yet.
    pub fn holds(&mut self, read: Reading) -> bool {
        let first = *self.first.get_or_insert(read);
        let was_set_back = first.at(read.uptime).since(read.time) > MAX_STEP;
        if first.was_set_forward(read) || was_set_back {
            self.first = Some(read);
            return true;
        }
        read.uptime.since(first.uptime) < CORRECTION_TIME
    }

    pub fn end(&mut self) {
        self.first = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(time: u64, uptime: u64) -> Reading {
        Reading { time: UnixTime::from_secs(time), uptime: BootTime::from_micros(uptime * 1_000_000) }
    }

    #[test]
    fn a_clock_may_drift_a_little() {
        let first = reading(1_000, 0);
        assert!(!first.was_set_forward(reading(1_011, 10)) && !first.was_set_forward(reading(1_000, 10)));
        assert!(first.was_set_forward(reading(1_012, 10)));
    }

    #[test]
    fn a_clock_is_believed_when_it_has_gone_on_for_ten_minutes() {
        let mut doubt = Doubt::default();
        for (time, uptime, holds) in [
            (5_000, 0, true),
            (5_300, 300, true),
            // It begins again with each step.
            (9_400, 400, true),
            (400, 410, true),
            (999, 1_009, true),
            (1_000, 1_010, false),
        ] {
            assert_eq!(doubt.holds(reading(time, uptime)), holds, "{uptime}");
        }
        doubt.end();
        assert!(doubt.holds(reading(1_010, 1_020)));
    }
}

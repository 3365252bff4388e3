//! The time by which the grace period of a refresh is measured. No step of the system clock changes it, unless it
//! lasts.
//!
//! It begins with the system clock, goes on with the uptime of the machine, and is never set back. A step forward that
//! has lasted for ten minutes counts: otherwise the next start would find the rotations of this one long ago. Which
//! refreshes come then is not known, so that none counts as reuse for a while.

use std::time::Duration;

use crate::tokens::family::Family;
use crate::types::boot_time::BootTime;
use crate::types::clock::{Clock, SystemClock, UnixTime};
use crate::types::clock_step::{Doubt, Reading};

pub(super) struct SteadyTime {
    began: BootTime,
    last: Reading,
    doubt: Doubt,
    jumped_at: Option<BootTime>,
}

impl SteadyTime {
    pub(super) fn begin() -> Self {
        Self::beginning_with(read())
    }

    fn beginning_with(first: Reading) -> Self {
        SteadyTime { began: first.uptime, last: first, doubt: Doubt::default(), jumped_at: None }
    }

    pub(super) fn read(&mut self) -> SteadyNow {
        let read = read();
        SteadyNow { time: self.at(read), since_start: read.uptime.since(self.began) }
    }

    fn at(&mut self, read: Reading) -> UnixTime {
        if !self.last.was_set_forward(read) {
            self.doubt.end();
        } else if !self.doubt.holds(read) {
            self.doubt.end();
            self.last = read;
            self.jumped_at = Some(read.uptime);
        }
        self.last.at(read.uptime)
    }

    /// Returns true if the time has jumped forward within this span.
    pub(super) fn jumped_within(&self, span: Duration) -> bool {
        self.jumped_at.is_some_and(|at| BootTime::now().since(at) <= span)
    }
}

/// The time of a transaction.
#[derive(Clone, Copy)]
pub(super) struct SteadyNow {
    time: UnixTime,
    /// Of this process.
    since_start: Duration,
}

impl SteadyNow {
    /// The time at which a refresh of this family is decided. If its last rotation lies ahead, the process before had a
    /// wrong clock: it counts as one at the start of this process.
    pub(super) fn deciding(self, family: Option<&Family>) -> UnixTime {
        match family.and_then(Family::last_rotation) {
            Some(rotated_at) if rotated_at > self.time => rotated_at + self.since_start,
            _ => self.time,
        }
    }

    /// When a rotation happened that was decided at the time of [`SteadyNow::deciding`]. A test that sets the clock
    /// decides at another time, which stays.
    pub(super) fn of_rotation(self, rotated_at: UnixTime, deciding: UnixTime) -> UnixTime {
        if rotated_at == deciding { self.time } else { rotated_at }
    }
}

fn read() -> Reading {
    Reading { time: SystemClock.now(), uptime: BootTime::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(time: u64, uptime: u64) -> Reading {
        Reading { time: UnixTime::from_secs(time), uptime: BootTime::from_micros(uptime * 1_000_000) }
    }

    #[test]
    fn only_a_step_forward_that_lasts_counts() {
        let mut time = SteadyTime::beginning_with(reading(10_000, 0));
        for (read, uptime, expected) in [
            (10_010, 10, 10_010),
            // Ahead for five minutes, then behind.
            (90_020, 20, 10_020),
            (90_320, 320, 10_320),
            (10_330, 330, 10_330),
            (5_000, 340, 10_340),
            // Ahead for good.
            (10_400, 350, 10_350),
            (10_999, 949, 10_949),
        ] {
            assert_eq!(time.at(reading(read, uptime)), UnixTime::from_secs(expected), "{uptime}");
            assert_eq!(time.jumped_at, None);
        }
        assert_eq!(time.at(reading(11_000, 950)), UnixTime::from_secs(11_000));
        assert_eq!(time.jumped_at, Some(reading(0, 950).uptime));
        assert_eq!(time.at(reading(10_000, 960)), UnixTime::from_secs(11_010), "it is never set back");
    }

    #[test]
    fn a_rotation_that_lies_ahead_counts_from_the_start_of_this_process() {
        let at = UnixTime::from_secs;
        let now = SteadyNow { time: at(1_000), since_start: Duration::from_secs(7) };
        let rotated = |time| Family { generation: 2, rotated_at: at(time), ..Family::sample(at(900)) };
        assert_eq!(now.deciding(Some(&rotated(990))), at(1_000));
        assert_eq!(now.deciding(Some(&rotated(5_000))), at(5_007));
        assert_eq!(now.deciding(None), at(1_000));
        assert_eq!(now.of_rotation(at(5_007), at(5_007)), at(1_000), "the next one is measured by this process");
        assert_eq!(now.of_rotation(at(20), at(1_000)), at(20), "a test has set the clock");
    }
}

//! The offset of the store's clock from the uptime of this machine.
//!
//! Each poll gives one sample: the time of the store, and when the poll was sent and answered. The store read its
//! clock in between, so that the error is at most half of the round trip. Of the last samples, the one with the
//! shortest round trip counts, as in NTP. The offset in force changes only if that sample contradicts it: otherwise the
//! time would go back and forth by the jitter of the network.

use std::collections::VecDeque;
use std::time::Duration;

use crate::types::boot_time::BootTime;

/// Number of samples: 2 s of polls.
const SAMPLES: usize = 8;

/// How far two clocks drift apart within the samples at most, at 200 ppm.
const DRIFT: Duration = Duration::from_micros(400);

#[derive(Clone, Copy)]
struct Sample {
    /// Microseconds.
    offset: i64,
    error: Duration,
}

/// The samples, and the offset in force.
#[derive(Default)]
pub(super) struct ClockOffset {
    samples: VecDeque<Sample>,
    in_force: Option<i64>,
}

impl ClockOffset {
    /// `sent`: when the poll was sent. `of_store`: microseconds since 1970.
    /// Returns the offset in force, and how wrong it can be.
    pub(super) fn add(&mut self, sent: BootTime, of_store: i64, round_trip: Duration) -> (i64, Duration) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let error = round_trip / 2;
        // The store read its clock in the middle of the round trip, give or take half of it.
        let middle = i64::try_from((sent + error).as_micros()).unwrap_or(i64::MAX);
        let newest = Sample { offset: of_store.saturating_sub(middle), error };
        let distance_of = |one: i64, other: i64| Duration::from_micros(one.abs_diff(other));
        // Samples that cannot both be right: one of the clocks was set in between.
        self.samples.retain(|old| distance_of(old.offset, newest.offset) <= old.error + newest.error + DRIFT);
        self.samples.push_back(newest);
        let best = self.samples.iter().rev().min_by_key(|sample| sample.error).copied().unwrap_or(newest);
        let distance = |offset: i64| distance_of(offset, best.offset);
        let in_force = match self.in_force {
            Some(offset) if distance(offset) <= best.error => offset,
            _ => best.offset,
        };
        self.in_force = Some(in_force);
        (in_force, best.error + distance(in_force))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// The store is `offset` ahead, and reads its clock in the middle of the round trip.
    fn add(clock: &mut ClockOffset, offset: i64, round_trip: Duration) -> (i64, Duration) {
        let half = i64::try_from(round_trip.as_micros() / 2).expect("some milliseconds");
        clock.add(BootTime::from_micros(7), 7 + half + offset, round_trip)
    }

    #[test]
    fn the_store_reads_its_clock_in_the_middle_of_the_round_trip() {
        assert_eq!(
            ClockOffset::default().add(BootTime::from_micros(1_000), 5_000, 4 * MILLISECOND),
            (2_000, 2 * MILLISECOND)
        );
    }

    #[test]
    fn the_shortest_round_trip_counts_and_jitter_changes_nothing() {
        let mut clock = ClockOffset::default();
        assert_eq!(add(&mut clock, 1_000_000, 100 * MILLISECOND), (1_000_000, 50 * MILLISECOND));
        assert_eq!(add(&mut clock, 1_030_000, 2 * MILLISECOND), (1_030_000, MILLISECOND));
        assert_eq!(add(&mut clock, 1_060_000, 90 * MILLISECOND), (1_030_000, MILLISECOND));
        let half = Duration::from_micros(500);
        assert_eq!(add(&mut clock, 1_030_400, MILLISECOND), (1_030_000, half + Duration::from_micros(400)));
    }

    #[test]
    fn a_clock_that_was_set_counts_at_once() {
        let mut clock = ClockOffset::default();
        for _ in 0..SAMPLES {
            add(&mut clock, 0, 2 * MILLISECOND);
        }
        assert_eq!(add(&mut clock, -3_000_000, 4 * MILLISECOND), (-3_000_000, 2 * MILLISECOND));
    }

    #[test]
    fn a_short_round_trip_is_forgotten_after_a_while() {
        let mut clock = ClockOffset::default();
        add(&mut clock, 0, Duration::ZERO);
        for _ in 0..SAMPLES {
            add(&mut clock, 3_000, 8 * MILLISECOND);
        }
        assert_eq!(add(&mut clock, 3_000, 8 * MILLISECOND), (0, 7 * MILLISECOND));
    }

    #[test]
    fn samples_that_can_both_be_right_are_kept() {
        let errors = 3 * MILLISECOND;
        let allowed = i64::try_from((errors + DRIFT).as_micros()).expect("some milliseconds");
        for (distance, best) in [(allowed, 0), (allowed + 1, allowed + 1)] {
            let mut clock = ClockOffset::default();
            add(&mut clock, 0, 2 * MILLISECOND);
            assert_eq!(add(&mut clock, distance, 4 * MILLISECOND).0, best, "{distance}");
        }
    }
}

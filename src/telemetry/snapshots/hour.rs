//! Hits of limits in the last hour: one sum for each minute.

use std::time::Duration;

use crate::telemetry::metrics::{ByLimit, NO_HITS, limit_names};

const MINUTES: usize = 60;

/// The sums of the last 60 minutes, of which the last has begun only: 59 to 60 minutes.
pub(super) struct Hour {
    /// The sum of minute `m` since the start is at `m % 60`.
    sums: [ByLimit; MINUTES],
    /// The newest minute with a sum.
    newest: u64,
}

impl Default for Hour {
    fn default() -> Self {
        Hour { sums: [NO_HITS; MINUTES], newest: 0 }
    }
}

impl Hour {
    /// `at`: since the start.
    pub(super) fn add(&mut self, at: Duration, hits: &ByLimit) {
        self.forget_before(at);
        let sums = &mut self.sums[place(self.newest)];
        sums.iter_mut().zip(hits).for_each(|(sum, hits)| *sum += hits);
    }

    /// Those that were hit.
    pub(super) fn hits(&mut self, at: Duration) -> Vec<(&'static str, u64)> {
        self.forget_before(at);
        let total = |limit: usize| self.sums.iter().map(|sums| sums[limit]).sum();
        limit_names().enumerate().map(|(limit, name)| (name, total(limit))).filter(|(_, hits)| *hits > 0).collect()
    }

    fn forget_before(&mut self, at: Duration) {
        let minute = (at.as_secs() / 60).max(self.newest);
        // After an hour without a call, all are old.
        for begun in (self.newest + 1..=minute).take(MINUTES) {
            self.sums[place(begun)] = NO_HITS;
        }
        self.newest = minute;
    }
}

fn place(minute: u64) -> usize {
    (minute % MINUTES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(hour: &mut Hour, minute: u64, hits: u64) {
        let mut by_limit = NO_HITS;
        by_limit[0] = hits;
        hour.add(Duration::from_secs(minute * 60 + 5), &by_limit);
    }

    fn total(hour: &mut Hour, minute: u64) -> u64 {
        hour.hits(Duration::from_secs(minute * 60 + 5)).iter().map(|(_, hits)| hits).sum()
    }

    #[test]
    fn hits_are_forgotten_after_an_hour() {
        let mut hour = Hour::default();
        hit(&mut hour, 0, 1);
        hit(&mut hour, 0, 2);
        hit(&mut hour, 30, 4);
        for (minute, expected) in [(30, 7), (59, 7), (60, 4), (89, 4), (90, 0)] {
            assert_eq!(total(&mut hour, minute), expected, "minute {minute}");
        }
    }

    #[test]
    fn nothing_old_comes_back_after_a_long_pause() {
        for pause in [59, 60, 61, 119, 120, 121, 6_000] {
            let mut hour = Hour::default();
            (0..60).for_each(|minute| hit(&mut hour, minute, 1));
            assert_eq!(total(&mut hour, 59 + pause), 60_u64.saturating_sub(pause), "after {pause} minutes");
        }
    }

    #[test]
    fn a_time_before_the_last_one_counts_for_the_last_one() {
        let mut hour = Hour::default();
        hit(&mut hour, 10, 1);
        hit(&mut hour, 9, 1);
        assert_eq!(total(&mut hour, 10), 2);
        assert_eq!(total(&mut hour, 69), 2);
        assert_eq!(total(&mut hour, 70), 0);
    }
}

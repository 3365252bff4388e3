//! Pauses between equal messages that requests cause: clients could fill the log with them otherwise.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// From one message to the next.
const INTERVAL: Duration = Duration::from_secs(10);

/// When a failure was last reported, and how many were not since.
#[derive(Debug, Default)]
pub struct ReportInterval(Mutex<(Option<Instant>, u64)>);

impl ReportInterval {
    pub const fn new() -> Self {
        ReportInterval(Mutex::new((None, 0)))
    }

    /// Counts a failure. Returns the number of failures since the last report, or `None` if this one is not reported.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let (last, others) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            *others += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_every_ten_seconds() {
        let reports = ReportInterval::new();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let counted = [0, 0, 9, 10, 11, 12, 40].map(|after| reports.count(start + second * after));
        assert_eq!(counted, [Some(0), None, None, Some(2), None, None, Some(2)]);
    }
}

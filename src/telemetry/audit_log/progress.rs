//! The progress of deliveries, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[derive(Default)]
pub struct Progress {
    pub failures: AtomicU64,
    failing_since: Mutex<Option<Instant>>,
}

impl Progress {
    /// How long deliveries have failed. Zero while they succeed.
    pub fn lag(&self) -> Duration {
        let since = *self.failing_since.lock();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Records a failure. Returns true if it is the first one in a row.
    pub(super) fn record_failure(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut since = self.failing_since.lock();
        let is_first = since.is_none();
        since.get_or_insert_with(Instant::now);
        is_first
    }

    /// Records a success. Returns true if it is the first one after a failure.
    pub(super) fn record_success(&self) -> bool {
        self.failing_since.lock().take().is_some()
    }
}

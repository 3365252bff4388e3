//! The time of a shared store, as this gateway has measured it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// With more between the clock of the machine and that of the store, one of them is wrong, and the gateway is not
/// ready.
pub(super) const MAX_OFFSET: Duration = Duration::from_secs(5);

const NO_TIME: i64 = i64::MIN;

/// Written by the follower of the store, read by all threads. It goes on with the uptime of this machine between polls.
pub struct StoreTime {
    /// The time of the store when the uptime of this machine began, in microseconds since 1970; [`NO_TIME`]: no poll
    /// has measured it.
    at_start: AtomicI64,
    /// How wrong that can be, in microseconds.
    error: AtomicU64,
}

impl Default for StoreTime {
    fn default() -> Self {
        StoreTime { at_start: AtomicI64::new(NO_TIME), error: AtomicU64::new(0) }
    }
}

impl StoreTime {
    /// `None` before a poll has measured it.
    pub fn now(&self) -> Option<UnixTime> {
        self.micros().map(|micros| UnixTime::from_millis(micros.max(0).unsigned_abs() / 1_000))
    }

    fn micros(&self) -> Option<i64> {
        let at_start = Some(self.at_start.load(Ordering::Relaxed)).filter(|time| *time != NO_TIME)?;
        let uptime = i64::try_from(BootTime::now().as_micros()).unwrap_or(i64::MAX);
        Some(at_start.saturating_add(uptime))
    }

    /// How wrong [`StoreTime::now`] can be.
    pub fn error(&self) -> Duration {
        Duration::from_micros(self.error.load(Ordering::Relaxed))
    }

    /// Microseconds by which the clock of the store is ahead of the clock of this machine.
    pub fn offset(&self) -> i64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let machine = i64::try_from(machine.as_micros()).unwrap_or(i64::MAX);
        self.micros().map_or(0, |store| store.saturating_sub(machine))
    }

    /// `at_start`: the time of the store when the uptime of this machine began, in microseconds since 1970.
    pub fn set(&self, at_start: i64, error: Duration) {
        self.error.store(u64::try_from(error.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.at_start.store(at_start, Ordering::Relaxed);
    }

    /// The reason why the gateway is not ready, if it is not.
    pub fn not_ready(&self) -> Option<String> {
        far_clocks(self.offset())
    }
}

/// The reason why a gateway is not ready with this [`StoreTime::offset`], if it is not.
fn far_clocks(offset: i64) -> Option<String> {
    let offset = Duration::from_micros(offset.unsigned_abs());
    (offset > MAX_OFFSET).then(|| format!("the clock of this machine and that of the store differ by {offset:.1?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_five_seconds() {
        for (offset, differs) in [(5_000_000, false), (5_000_001, true), (-5_000_001, true)] {
            let reason = far_clocks(offset);
            assert_eq!(reason.is_some_and(|reason| reason.ends_with("differ by 5.0s")), differs, "{offset}");
        }
    }
}

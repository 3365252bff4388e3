//! `[throttle]`: limits for calls on tokens.

use std::time::Duration;

use crate::config::document::table::Table;
use crate::limits::limiter::Rate;
use crate::limits::throttle::ThrottleSettings;

pub(super) fn read(table: &mut Table<'_>) -> ThrottleSettings {
    ThrottleSettings {
        refreshes: rate(table, "refreshes", 10, Duration::from_secs(50)),
        calls: rate(table, "calls", 300, Duration::from_mins(1)),
        failures: rate(table, "failures", 20, Duration::from_mins(1)),
    }
}

/// The key is the burst. The full burst is available again after `span`. 0: no limit.
pub(super) fn rate(table: &mut Table<'_>, key: &'static str, default: usize, span: Duration) -> Option<Rate> {
    let burst = u32::try_from(table.integer(key, default, 0..=10_000)).unwrap_or(u32::MAX);
    (burst > 0).then(|| Rate { burst, interval: span / burst })
}

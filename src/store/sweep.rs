//! Deletes old rows slowly, so that requests do not wait for it.
//!
//! Deleting a row changes a page in each index, and these pages are far apart. A large sweep would therefore write
//! megabytes in a commit that refreshes wait for. The sweep deletes a few rows at a time and then pauses for many times
//! as long, which is some hundred rows per second. The number of rows to delete is at most the number of logins a month
//! ago.

use std::time::{Duration, Instant};

use crate::store::api::Store;
use crate::store::error::StoreError;
use crate::types::clock::{Clock, UnixTime};

/// Rows of each table that one step deletes.
const ROWS: usize = 100;
/// Pause after each step, as a multiple of its duration: a sweep uses 2 % of the time of the store.
const PAUSE_FACTOR: u32 = 49;
/// Maximum pause, so that one slow write does not stop the sweep for long.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Deletes all rows that no longer matter. Returns how many there were.
pub async fn sweep(store: &dyn Store, clock: &dyn Clock) -> Result<usize, StoreError> {
    let mut total = 0;
    loop {
        let started = Instant::now();
        let deleted = store.sweep(slowest_now(clock), ROWS).await?;
        total += deleted;
        if deleted < ROWS {
            return Ok(total);
        }
        tokio::time::sleep(pause_after(started.elapsed())).await;
    }
}

/// The time at the slowest gateway on the store. What has ended here may still hold there: a used proof or assertion,
/// for example, must be remembered until no gateway accepts it.
pub fn slowest_now(clock: &dyn Clock) -> UnixTime {
    clock.now() - clock.max_difference()
}

fn pause_after(step: Duration) -> Duration {
    (step * PAUSE_FACTOR).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::freshness::Freshness;
    use crate::store::shared_clock::SharedClock;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> UnixTime {
            UnixTime::from_secs(1_000)
        }
    }

    #[test]
    fn rows_stay_until_the_slowest_gateway_needs_none_of_them() {
        assert_eq!(slowest_now(&Fixed), Fixed.now(), "one gateway has one clock");
        // Of two gateways, this one can be a second ahead of the store, and the other one a second behind.
        let shared = SharedClock::new(Arc::new(Fixed), Arc::new(Freshness::new(Duration::from_secs(30), false, false)));
        assert_eq!(shared.now(), Fixed.now());
        assert_eq!(slowest_now(&shared), UnixTime::from_secs(998));
    }

    #[test]
    fn a_sweep_uses_two_percent_of_the_time() {
        assert_eq!(pause_after(Duration::from_millis(2)), Duration::from_millis(98));
        assert_eq!(pause_after(Duration::from_secs(1)), MAX_PAUSE);
    }
}

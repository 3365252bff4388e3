//! Deletes old rows slowly, so that requests do not wait for it.
//!
//! Deleting a row changes a page in each index, and these pages are far apart. A large sweep would therefore write
//! megabytes in a commit that refreshes wait for. The sweep deletes a few rows at a time and then pauses for many times
//! as long, which is some hundred rows per second. The number of rows to delete is at most the number of logins a month
//! ago.

use std::time::{Duration, Instant};

use crate::store::api::Store;
use crate::store::error::StoreError;
use crate::types::clock::Clock;

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
        let deleted = store.sweep(clock.now(), ROWS).await?;
        total += deleted;
        if deleted < ROWS {
            return Ok(total);
        }
        tokio::time::sleep(pause_after(started.elapsed())).await;
    }
}

fn pause_after(step: Duration) -> Duration {
    (step * PAUSE_FACTOR).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_uses_two_percent_of_the_time() {
        assert_eq!(pause_after(Duration::from_millis(2)), Duration::from_millis(98));
        assert_eq!(pause_after(Duration::from_secs(1)), MAX_PAUSE);
    }
}

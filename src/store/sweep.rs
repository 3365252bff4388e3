//! Sweeping beside everything else that the store does: slow on purpose, so that nobody notices.
//!
//! A row that is deleted changes a page in each index, and those lie far apart: a large sweep would write megabytes into the
//! very commit that refreshes wait for. So it takes a few rows at a time, and then rests for many times as long as those
//! took. That is some hundred rows a second, of which there are fewer to delete than there were logins a month ago.

use std::time::{Duration, Instant};

use crate::store::{Store, StoreError};
use crate::types::clock::Clock;

const ROWS: usize = 100;
/// Rest for each time of work: the store gives a fiftieth of its time.
const REST: u32 = 49;

/// Deletes whatever no longer matters; done when nothing is left. Answers how much went.
pub async fn sweep(store: &dyn Store, clock: &dyn Clock) -> Result<usize, StoreError> {
    let mut swept = 0;
    loop {
        let began = Instant::now();
        let gone = store.sweep(clock.now(), ROWS).await?;
        swept += gone;
        if gone < ROWS {
            return Ok(swept);
        }
        // No longer than a sweep is apart from the next: a disk that was stuck once does not end it.
        tokio::time::sleep((began.elapsed() * REST).min(Duration::from_secs(30))).await;
    }
}

//! `bearward store sweep`: deletes at once what no longer matters. A running gateway deletes the same, slowly.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::error::StartError;
use super::open_store;
use super::shared_store;
use super::stored;
use crate::auth::revocations::Revocations;
use crate::config::Config;
use crate::store::sweep::{MAX_COUNTED, slowest_now};
use crate::store::{Expired, StoreError};
use crate::types::clock::Clock;

/// Rows of each table that one step deletes. Large, because no request waits for it.
const ROWS: usize = 10_000;
/// A log of 1,000,000 entries takes 6 s.
const LOG_PATIENCE: Duration = Duration::from_mins(1);

/// What a sweep did.
pub struct Swept {
    /// Number of rows.
    pub deleted: usize,
    /// What is there that should have been deleted. Of each table, at most 100,000 rows are counted.
    pub left: Expired,
}

/// `progress` gets the number of deleted rows after each step. Call it on a runtime. Gateways on a shared store may
/// sweep at the same time.
///
/// # Errors
/// If there is no store, or it cannot be opened or written. A running gateway keeps its SQLite database to itself.
pub async fn sweep_store(
    config: &Config,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(usize),
) -> Result<Swept, StartError> {
    // Otherwise it would be created. A wrong path must not look like a database without expired rows.
    if !stored::has_data(&config.store, Duration::ZERO)? {
        return Err(StartError::NothingToSweep(config.store.database.clone()));
    }
    let store = open_store::open(config, Arc::new(Revocations::new()), clock.clone(), Duration::ZERO)?;
    let failed = |source| StartError::SweepStore { database: config.store.database.clone(), source };
    if let Some(freshness) = store.freshness() {
        // The first poll of the log measures the clock of the store.
        let loaded = timeout(LOG_PATIENCE, freshness.loaded()).await;
        loaded.map_err(|_| failed(StoreError::new("its log could not be read within a minute").into()))?;
        // One of both clocks is wrong. What is deleted too early does not come back.
        if let Some(reason) = freshness.store_time.not_ready() {
            return Err(failed(StoreError::new(format!("{reason}; correct one of them")).into()));
        }
    }
    // The gateways on the store use that clock. The clock of this machine may be wrong.
    let clock = shared_store::clock(&*store, clock);
    let mut total = 0;
    loop {
        let deleted = store.sweep(slowest_now(&*clock), ROWS).await.map_err(|error| failed(error.into()))?;
        total += deleted;
        progress(total);
        if deleted == 0 {
            break;
        }
    }
    let left = store.expired(slowest_now(&*clock), MAX_COUNTED).await.map_err(|error| failed(error.into()))?;
    Ok(Swept { deleted: total, left })
}

//! Deletes expired rows while the gateway runs, and shows what waits.

use std::sync::Arc;
use std::time::Duration;

use crate::store::sweep::{SweepTime, sweep};
use crate::store::{Backlog, StoreUpkeep};
use crate::telemetry::metrics::Metrics;
use crate::types::clock::{Clock, every};

/// From the end of one sweep to the next.
const INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn sweep_regularly(store: Arc<dyn StoreUpkeep>, clock: Arc<dyn Clock>, backlog: Arc<Backlog>) {
    let mut due = every(INTERVAL);
    let mut time = SweepTime::default();
    loop {
        due.tick().await;
        if let Err(error) = sweep(&*store, &*clock, &mut time, &backlog).await {
            tracing::warn!(%error, "cannot remove expired rows from the store");
        }
    }
}

pub(super) fn register_metrics(backlog: &Arc<Backlog>, clock: &Arc<dyn Clock>, metrics: &mut Metrics) {
    let waiting = backlog.clone();
    let help = "Expired rows of the store that no sweep has deleted yet, of each table at most 100,000";
    metrics.gauge("store_expired_rows", help, move || waiting.get().rows as f64);
    let swept = backlog.clone();
    let help = "Expired rows of the store that the sweeps of this gateway have deleted";
    metrics.counter("store_swept_rows", help, move || swept.swept() as f64);
    let waiting = backlog.clone();
    let clock = clock.clone();
    let help = "Seconds since the oldest of them expired";
    metrics.gauge("store_expired_age_seconds", help, move || waiting.get().age(clock.now()).as_secs_f64());
}

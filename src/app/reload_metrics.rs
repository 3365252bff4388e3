//! The results of reloads in `/metrics`. The start counts as a reload that succeeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::telemetry::metrics::Metrics;
use crate::types::clock::Clock;

pub(super) struct ReloadMetrics {
    last_succeeded: AtomicBool,
    /// Unix seconds.
    last_success: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl ReloadMetrics {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        ReloadMetrics {
            last_succeeded: AtomicBool::new(true),
            last_success: AtomicU64::new(clock.now().as_secs()),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self, succeeded: bool, clock: &dyn Clock) {
        self.last_succeeded.store(succeeded, Ordering::Relaxed);
        if succeeded {
            self.last_success.store(clock.now().as_secs(), Ordering::Relaxed);
        }
        let count = if succeeded { &self.succeeded } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn register(self: &Arc<Self>, metrics: &mut Metrics) {
        let this = self.clone();
        let help = "1 if the files on disk are active, 0 if the last reload failed and changed nothing";
        metrics
            .gauge("reload_succeeded", help, move || f64::from(u8::from(this.last_succeeded.load(Ordering::Relaxed))));
        let this = self.clone();
        let help = "When the active configuration was read, in Unix time";
        metrics.gauge("reload_success_time_seconds", help, move || this.last_success.load(Ordering::Relaxed) as f64);
        let this = self.clone();
        metrics.counters("reloads", "Reloads since the start, by outcome", move || {
            let outcomes = [("succeeded", &this.succeeded), ("failed", &this.failed)];
            let labelled = |(outcome, count): (&str, &AtomicU64)| {
                (vec![("outcome", outcome.to_owned())], count.load(Ordering::Relaxed) as f64)
            };
            outcomes.into_iter().map(labelled).collect()
        });
    }
}

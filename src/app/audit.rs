//! The thread that delivers audit events, and what can be measured of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::thread;
use crate::store::Store;
use crate::telemetry::audit_log::{Delivery, DeliveryError, Target};
use crate::telemetry::metrics::Metrics;
use crate::types::reject::with_causes;

/// Runs until it is dropped, and delivers what is left then.
pub(super) struct AuditThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

pub(super) fn prepare(
    store: Arc<dyn Store>,
    target: Target,
    metrics: &mut Metrics,
) -> Result<Option<Delivery>, String> {
    let outbox = store.outbox();
    let fault = |error: DeliveryError| {
        format!("audit events cannot be delivered: {}; see [audit] in the configuration", with_causes(&error))
    };
    let Some(delivery) = Delivery::prepare(store, target).map_err(fault)? else { return Ok(None) };
    let waiting = outbox.clone();
    metrics.gauge("audit_waiting", "Audit events that wait for their delivery", move || {
        waiting.waiting.load(Ordering::Relaxed) as f64
    });
    let lag = delivery.progress.clone();
    metrics.gauge("audit_lag_seconds", "How long the oldest audit event has been tried in vain", move || {
        lag.lag().as_secs_f64()
    });
    let failures = delivery.progress.clone();
    metrics.counter("audit_failures", "Deliveries of audit events that failed, and are tried again", move || {
        failures.failures.load(Ordering::Relaxed) as f64
    });
    metrics.counter("audit_lost", "Audit events that were not recorded, as too many were waiting", move || {
        outbox.lost.load(Ordering::Relaxed) as f64
    });
    Ok(Some(delivery))
}

pub(super) fn start(delivery: Delivery) -> Result<AuditThread, String> {
    let (stop, stopped) = watch::channel(false);
    let thread = thread::start("audit", thread::runtime()?, || delivery.run(stopped))?;
    Ok(AuditThread { stop, thread: Some(thread) })
}

impl Drop for AuditThread {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

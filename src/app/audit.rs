//! The thread that delivers audit events, and its metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::error::StartError;
use super::thread;
use crate::store::AuditStore;
use crate::telemetry::audit_log::{AuditLogTarget, Delivery};
use crate::telemetry::metrics::Metrics;

/// Delivers until it is dropped. Dropping it delivers the remaining events.
pub(super) struct AuditThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns `None` if `[audit]` is off.
pub(super) fn prepare(
    store: Arc<dyn AuditStore>,
    target: AuditLogTarget,
    metrics: &mut Metrics,
) -> Result<Option<Delivery>, StartError> {
    let outbox = store.outbox();
    let delivery = Delivery::prepare(store, target).map_err(|error| StartError::Audit(error.into()))?;
    let Some(delivery) = delivery else { return Ok(None) };
    let waiting = outbox.clone();
    metrics.gauge("audit_waiting", "Audit events that wait for delivery", move || {
        waiting.waiting.load(Ordering::Relaxed) as f64
    });
    let lag = delivery.progress.clone();
    metrics.gauge("audit_lag_seconds", "How long the delivery of the oldest audit event has failed", move || {
        lag.lag().as_secs_f64()
    });
    let failures = delivery.progress.clone();
    metrics.counter("audit_failures", "Failed deliveries of audit events, each of which is retried", move || {
        failures.failures.load(Ordering::Relaxed) as f64
    });
    metrics.counter("audit_lost", "Audit events that were dropped because the outbox was full", move || {
        outbox.lost.load(Ordering::Relaxed) as f64
    });
    Ok(Some(delivery))
}

pub(super) fn start(delivery: Delivery) -> Result<AuditThread, StartError> {
    let (stop, stopped) = watch::channel(false);
    let thread = thread::start("audit", thread::runtime()?, || delivery.run(stopped))?;
    Ok(AuditThread { stop, thread: Some(thread) })
}

impl Drop for AuditThread {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which also ends it.
            let _ = thread.join();
        }
    }
}

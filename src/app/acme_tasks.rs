//! Certificates from an ACME server: the tasks that run beside the listeners.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::reload::LiveConfig;
use super::reload_thread::warn_of_files;
use crate::server::acme::{Worker, follow, work};
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::reject::with_causes;

/// Ends its tasks when dropped. Another gateway, or the next start, goes on with an order.
pub(super) struct AcmeTasks([AbortHandle; 3]);

impl AcmeTasks {
    /// On the current runtime.
    pub(super) fn start(live: &Arc<LiveConfig>, metrics: &Arc<WorkerMetrics>) -> Self {
        let entries = live.state.acme.clone();
        let worker = Worker { entries: entries.clone(), clock: live.state.clock.clone(), metrics: metrics.clone() };
        let tasks = [tokio::spawn(follow(entries)), tokio::spawn(work(worker)), tokio::spawn(activate(live.clone()))];
        AcmeTasks(tasks.map(|task| task.abort_handle()))
    }
}

impl Drop for AcmeTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Has the listeners use new certificates.
async fn activate(live: Arc<LiveConfig>) {
    let mut changes = live.state.acme.certificates.changes();
    while changes.changed().await.is_ok() {
        let live = live.clone();
        // On a thread of its own: it waits for a reload, which can wait for a file system.
        let activated = tokio::task::spawn_blocking(move || live.activate_acme()).await;
        match activated {
            Ok(Ok(warnings)) => warn_of_files(&warnings),
            Ok(Err(error)) => {
                tracing::error!(error = with_causes(&error), "cannot use a new certificate; the old ones stay active");
            }
            // The thread has panicked, which is logged.
            Err(_) => {}
        }
    }
}

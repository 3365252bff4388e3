//! The task that delivers events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::error::DeliveryError;
use super::file;
use super::progress::Progress;
use super::settings::AuditLogTarget;
use crate::store::AuditStore;
use crate::tokens::audit_event::Recorded;
use crate::types::reject::with_causes;
use crate::types::secret;

/// Maximum number of events in one delivery: some 100 KB.
const BATCH: usize = 500;
/// How long events gather before a delivery, so that they share one flush of the disk.
const GATHER: Duration = Duration::from_millis(50);
/// The delay after the first failure. It doubles with each further one.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum time for the last delivery of a graceful shutdown. Events that remain wait in the store for the next start.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Delivery {
    store: Arc<dyn AuditStore>,
    target: AuditLogTarget,
    pub progress: Arc<Progress>,
}

/// Fails if the file cannot be opened. Writes nothing.
pub fn check(target: &AuditLogTarget) -> Result<(), DeliveryError> {
    let AuditLogTarget::File(path) = target else { return Ok(()) };
    file::open(path).map(drop).map_err(|source| DeliveryError::File { path: path.clone(), source })
}

impl Delivery {
    /// `None` if the audit log is off.
    ///
    /// # Errors
    /// If the file cannot be written, so that the operator learns it at the start.
    pub fn prepare(store: Arc<dyn AuditStore>, target: AuditLogTarget) -> Result<Option<Self>, DeliveryError> {
        match &target {
            AuditLogTarget::Off => return Ok(None),
            AuditLogTarget::File(path) => {
                file::append(path, &[]).map_err(|source| DeliveryError::File { path: path.clone(), source })?;
            }
            AuditLogTarget::Webhook(_) => {}
        }
        Ok(Some(Delivery { store, target, progress: Arc::default() }))
    }

    /// Delivers until `stopped`, and then once more. It writes files, so it needs a thread of its own.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let outbox = self.store.outbox();
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let next = async {
                match self.deliver_all().await {
                    Ok(()) => {
                        if self.progress.record_success() {
                            tracing::info!("the delivery of audit events works again");
                        }
                        delay = MIN_RETRY_DELAY;
                        outbox.written.notified().await;
                        sleep(GATHER).await;
                    }
                    Err(error) => {
                        if self.progress.record_failure() {
                            let error = with_causes(&error);
                            tracing::error!(error, "cannot deliver audit events; they wait in the store");
                        }
                        sleep(jittered(delay)).await;
                        delay = (delay * 2).min(MAX_RETRY_DELAY);
                    }
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = next => {}
            }
        }
        if !matches!(timeout(SHUTDOWN_TIMEOUT, self.deliver_all()).await, Ok(Ok(()))) {
            tracing::warn!("some audit events were not delivered; they wait in the store for the next start");
        }
    }

    async fn deliver_all(&self) -> Result<(), DeliveryError> {
        loop {
            let events = self.store.undelivered(BATCH).await?;
            if events.is_empty() {
                return Ok(());
            }
            self.deliver(&events).await?;
            self.store.delivered(events.iter().map(|event| event.sequence).collect()).await?;
        }
    }

    async fn deliver(&self, events: &[Recorded]) -> Result<(), DeliveryError> {
        match &self.target {
            AuditLogTarget::Off => Ok(()),
            AuditLogTarget::File(path) => {
                file::append(path, events).map_err(|source| DeliveryError::File { path: path.clone(), source })
            }
            AuditLogTarget::Webhook(receiver) => {
                // One line of JSON for each event.
                let lines: String = events.iter().map(|event| event.line() + "\n").collect();
                receiver.post("application/x-ndjson", lines.into()).await.map_err(DeliveryError::webhook)
            }
        }
    }
}

/// 50 to 100 % of the delay, so that gateways that lost the same receiver do not retry together.
fn jittered(delay: Duration) -> Duration {
    delay / 2 + delay * u32::from(secret::random::<1>()[0]) / 512
}

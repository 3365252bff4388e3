//! Audit events on their way from the store's outbox to a file or a webhook: in order, at least once, retried until they are
//! taken.
//!
//! An event leaves the outbox once the file is flushed to the disk or the webhook has said 2xx. A crash in between has it
//! delivered again: the file knows its own last line and takes each event once; a webhook tells doubles by `seq`. Where
//! nothing can be delivered, events wait, up to `audit.outbox` of them; requests never wait for a delivery.

mod file;
mod webhook;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::protocols::url::KeyUrl;
use crate::store::Store;
use crate::tokens::audit_event::Recorded;
use crate::types::reject::with_causes;
use crate::types::secret;

/// `[audit]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    /// `audit.outbox`: so many events wait at most.
    pub outbox: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Off,
    File(PathBuf),
    Webhook(Webhook),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    pub url: KeyUrl,
    /// PEM; without it, the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Holds the value of the Authorization header.
    pub authorization_file: Option<PathBuf>,
}

/// Events of one delivery: some 100 KB.
const AT_ONCE: usize = 500;
/// One flush of the disk takes whatever happened meanwhile. An event is at most so much later.
const GATHER: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What the last requests left is delivered at the end, if that is quickly done. If not, it waits in the store.
const FAREWELL: Duration = Duration::from_secs(2);

/// How deliveries go, for the metrics.
#[derive(Default)]
pub struct Progress {
    pub failures: AtomicU64,
    stuck_since: Mutex<Option<Instant>>,
}

impl Progress {
    /// How long the oldest event has been tried in vain.
    pub fn lag(&self) -> Duration {
        self.stuck().map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn stuck(&self) -> Option<Instant> {
        *self.stuck_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is this the first failure in a row?
    fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut since = self.stuck_since.lock().unwrap_or_else(PoisonError::into_inner);
        let first = since.is_none();
        since.get_or_insert_with(Instant::now);
        first
    }

    fn went_well(&self) -> bool {
        self.stuck_since.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

pub struct Delivery {
    store: Arc<dyn Store>,
    target: Target,
    pub progress: Arc<Progress>,
}

impl Delivery {
    /// `None` if there is nobody to deliver to.
    ///
    /// # Errors
    /// If the file cannot be written: better known at the start than when it is needed.
    pub fn prepare(store: Arc<dyn Store>, target: Target) -> Result<Option<Self>, String> {
        match &target {
            Target::Off => return Ok(None),
            Target::File(path) => file::append(path, &[]).map_err(|error| format!("{}: {error}", path.display()))?,
            Target::Webhook(_) => {}
        }
        Ok(Some(Delivery { store, target, progress: Arc::default() }))
    }

    /// Delivers until `stopped`, and then once more. It writes files: give it a thread of its own.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let outbox = self.store.outbox();
        let mut pause = FIRST_PAUSE;
        loop {
            let next = async {
                match self.deliver_all().await {
                    Ok(()) => {
                        if self.progress.went_well() {
                            tracing::info!("audit events are delivered again");
                        }
                        pause = FIRST_PAUSE;
                        outbox.written.notified().await;
                        sleep(GATHER).await;
                    }
                    Err(error) => {
                        if self.progress.failed() {
                            tracing::error!(error, "audit events cannot be delivered; they wait in the store");
                        }
                        sleep(jittered(pause)).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = next => {}
            }
        }
        if !matches!(timeout(FAREWELL, self.deliver_all()).await, Ok(Ok(()))) {
            tracing::warn!("some audit events were not delivered; they wait in the store for the next start");
        }
    }

    async fn deliver_all(&self) -> Result<(), String> {
        loop {
            let events = self.store.undelivered(AT_ONCE).await.map_err(|error| error.to_string())?;
            let Some(last) = events.last() else { return Ok(()) };
            self.deliver(&events).await?;
            self.store.delivered(last.sequence).await.map_err(|error| error.to_string())?;
            self.store.outbox().waiting.fetch_sub(events.len() as u64, Ordering::Relaxed);
        }
    }

    async fn deliver(&self, events: &[Recorded]) -> Result<(), String> {
        match &self.target {
            Target::Off => Ok(()),
            Target::File(path) => file::append(path, events).map_err(|error| format!("{}: {error}", path.display())),
            Target::Webhook(webhook) => webhook::post(webhook, events).await.map_err(|error| with_causes(&error)),
        }
    }
}

/// Half of it to all of it, so that gateways that lost their collector together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause * u32::from(secret::random::<1>()[0]) / 512
}

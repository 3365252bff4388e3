//! Sends spans to the collector: OTLP over HTTP, with Protocol Buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::batch;
use super::queue::Queue;
use crate::telemetry::post::{PostError, Receiver};
use crate::types::reject::with_causes;
use crate::types::secret;

const CONTENT_TYPE: &str = "application/x-protobuf";
/// Maximum bytes of spans in one request. Collectors accept several MiB.
const BATCH: usize = 512 * 1024;
/// How long spans gather before a request.
const GATHER: Duration = Duration::from_secs(1);
/// The delay after the first failure. It doubles with each further one.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum time for the last requests of a graceful shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Exporter {
    queue: Arc<Queue>,
    receiver: Receiver,
    /// Taken from the queue and not accepted yet.
    pending: Vec<Vec<u8>>,
    is_failing: bool,
}

impl Exporter {
    pub fn new(queue: Arc<Queue>, receiver: Receiver) -> Self {
        Exporter { queue, receiver, pending: Vec::new(), is_failing: false }
    }

    /// Sends until `stopped`, and then what is left.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let next = async {
                if self.send_all().await {
                    delay = MIN_RETRY_DELAY;
                    self.queue.added.notified().await;
                    sleep(GATHER).await;
                } else {
                    sleep(jittered(delay)).await;
                    delay = (delay * 2).min(MAX_RETRY_DELAY);
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = next => {}
            }
        }
        if !matches!(timeout(SHUTDOWN_TIMEOUT, self.send_all()).await, Ok(true)) {
            tracing::warn!("the last spans were not sent to the collector");
        }
    }

    /// Returns false if the collector cannot be reached, or asks to be asked later.
    async fn send_all(&mut self) -> bool {
        loop {
            if self.pending.is_empty() {
                self.pending = self.queue.take(BATCH);
            }
            if self.pending.is_empty() {
                return true;
            }
            let count = self.pending.len() as u64;
            match self.receiver.post(CONTENT_TYPE, batch::encode(&self.pending)).await {
                Ok(()) => {
                    self.queue.sent.fetch_add(count, Ordering::Relaxed);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector of traces accepts spans again");
                    }
                }
                Err(error) => {
                    self.report(&error);
                    if may_succeed_later(&error) {
                        return false;
                    }
                    self.queue.drops.collector.fetch_add(count, Ordering::Relaxed);
                }
            }
            self.pending.clear();
        }
    }

    /// Only the first failure in a row is reported.
    fn report(&mut self, error: &PostError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let error = with_causes(error);
            tracing::warn!(error, "cannot send spans to the collector of traces; requests do not wait for it");
        }
    }
}

/// Returns false if the collector rejects what was sent (OTLP 1, "OTLP/HTTP Response").
fn may_succeed_later(error: &PostError) -> bool {
    match error {
        PostError::Status { status, .. } => matches!(
            *status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ),
        _ => true,
    }
}

/// 50 to 100 % of the delay, so that gateways that lost the same collector do not retry together.
fn jittered(delay: Duration) -> Duration {
    delay / 2 + delay * u32::from(secret::random::<1>()[0]) / 512
}

//! Sends spans to the collector: OTLP over HTTP, with Protocol Buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::batch;
use super::partial_success::PartialSuccess;
use super::queue::Queue;
use crate::telemetry::access_log::cut;
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
/// Maximum that a collector can ask for with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Maximum bytes of what a collector says about spans that it rejected.
const MAX_REPORT: usize = 256;
/// Maximum time for the last requests of a graceful shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Exporter {
    queue: Arc<Queue>,
    receiver: Receiver,
    /// Taken from the queue and not accepted yet.
    pending: Vec<Vec<u8>>,
    is_failing: bool,
    /// The last batch was accepted only in part.
    is_partial: bool,
}

impl Exporter {
    pub fn new(queue: Arc<Queue>, receiver: Receiver) -> Self {
        Exporter { queue, receiver, pending: Vec::new(), is_failing: false, is_partial: false }
    }

    /// Sends until `stopped`, and then what is left.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let next = async {
                match self.send_all().await {
                    Ok(()) => {
                        delay = MIN_RETRY_DELAY;
                        self.queue.added.notified().await;
                        sleep(GATHER).await;
                    }
                    Err(Later(asked)) => {
                        sleep(asked + jittered(delay)).await;
                        delay = (delay * 2).min(MAX_RETRY_DELAY);
                    }
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = next => {}
            }
        }
        if !matches!(timeout(SHUTDOWN_TIMEOUT, self.send_all()).await, Ok(Ok(()))) {
            tracing::warn!("the last spans were not sent to the collector");
        }
    }

    /// Fails if the collector cannot be reached, or asks to be asked later.
    async fn send_all(&mut self) -> Result<(), Later> {
        loop {
            if self.pending.is_empty() {
                self.pending = self.queue.take(BATCH);
            }
            if self.pending.is_empty() {
                return Ok(());
            }
            let count = self.pending.len() as u64;
            match self.receiver.post_and_read(CONTENT_TYPE, batch::encode(&self.pending)).await {
                Ok(response) => {
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector of traces accepts spans again");
                    }
                    self.accepted(count, &PartialSuccess::read(&response));
                }
                Err(error) => {
                    self.report(&error);
                    if let Some(later) = Later::after(&error) {
                        return Err(later);
                    }
                    self.queue.drops.collector.fetch_add(count, Ordering::Relaxed);
                }
            }
            self.pending.clear();
        }
    }

    /// A collector names the number of rejected spans, but not their requests: each counts as one request. They must
    /// not be sent again. Only the first batch in a row is reported.
    fn accepted(&mut self, count: u64, partial: &PartialSuccess) {
        let rejected = partial.rejected_spans.min(count);
        self.queue.sent.fetch_add(count - rejected, Ordering::Relaxed);
        self.queue.drops.collector.fetch_add(rejected, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_partial, !partial.is_complete()) && self.is_partial {
            let spans = partial.rejected_spans;
            let reason = &*cut(&partial.message, MAX_REPORT);
            tracing::warn!(spans, reason, "the collector of traces rejects spans or warns");
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

/// The same spans may be accepted later: not before the time that the collector asks for.
struct Later(Duration);

impl Later {
    /// `None` if the collector rejects what was sent (OTLP 1, "OTLP/HTTP Response").
    fn after(error: &PostError) -> Option<Self> {
        match error {
            PostError::Status { status, retry_after, .. } => matches!(
                *status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            )
            .then(|| Later(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))),
            _ => Some(Later(Duration::ZERO)),
        }
    }
}

/// 50 to 100 % of the delay, so that gateways that lost the same collector do not retry together.
fn jittered(delay: Duration) -> Duration {
    delay / 2 + delay * u32::from(secret::random::<1>()[0]) / 512
}

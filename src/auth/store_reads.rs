//! Reads credentials from the store: API keys, and the logins of handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::store::StoreFuture;
use crate::telemetry::report_interval::ReportInterval;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// Credentials of one kind that are read at the same time.
const MAX_READS: usize = 64;

/// Those of open streams among them, so that requests do not wait for many streams.
const MAX_STREAM_READS: usize = 8;

/// Finds a credential without changing anything.
pub type Find<T> = dyn Fn(TokenId) -> StoreFuture<Option<T>> + Send + Sync;

/// `[tokens]` and `[timeouts]`, as far as they concern API keys and handles.
#[derive(Clone)]
pub struct StoredCredentialSettings {
    /// `tokens.audience`
    pub audience: Vec<String>,
    /// `tokens.access_lifetime`: how long a credential is good without reading the store again.
    pub lifetime: Duration,
    /// `timeouts.store`
    pub timeout: Duration,
}

/// Reads of one kind of credential.
pub(super) struct StoreReads<T> {
    /// For the log.
    kind: &'static str,
    find: Arc<Find<T>>,
    timeout: Duration,
    requests: Semaphore,
    streams: Semaphore,
    ok: AtomicU64,
    failed: AtomicU64,
    /// Of failed reads: clients can cause them with invented credentials.
    reports: ReportInterval,
}

impl<T> StoreReads<T> {
    pub(super) fn new(kind: &'static str, timeout: Duration, find: Arc<Find<T>>) -> Self {
        StoreReads {
            kind,
            find,
            timeout,
            requests: Semaphore::new(MAX_READS),
            streams: Semaphore::new(MAX_STREAM_READS),
            ok: AtomicU64::default(),
            failed: AtomicU64::default(),
            reports: ReportInterval::default(),
        }
    }

    /// Returns one for the same store, with counts of its own.
    pub(super) fn with_own_counts(&self) -> Self {
        StoreReads::new(self.kind, self.timeout, self.find.clone())
    }

    /// Reads a credential for open streams. Waits for those of other streams first.
    pub(super) async fn read_for_stream(&self, id: TokenId) -> Result<Option<T>, Reject> {
        // Never closed.
        let _turn = self.streams.acquire().await;
        self.read(id, Instant::now()).await
    }

    /// Reads a credential. Takes at most `timeouts.store` from `since` on, also if it waits for other reads.
    pub(super) async fn read(&self, id: TokenId, since: Instant) -> Result<Option<T>, Reject> {
        let reading = async {
            let _turn = self.requests.acquire().await;
            (self.find)(id).await
        };
        let error = match timeout_at(since + self.timeout, reading).await {
            Ok(Ok(found)) => {
                self.ok.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
            Ok(Err(error)) => error.message,
            Err(_) => too_late(self.timeout),
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(others) = self.reports.count(std::time::Instant::now()) {
            tracing::error!(%error, other_failures = others, "cannot read {} from the store", self.kind);
        }
        Err(Reject::new(Reason::StoreUnavailable, error))
    }

    /// How many reads have succeeded, and how many have failed.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        [("ok", &self.ok), ("failed", &self.failed)].map(|(result, count)| (result, count.load(Ordering::Relaxed)))
    }
}

pub(super) fn too_late(limit: Duration) -> String {
    format!("the store did not respond within {limit:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: TokenId = TokenId::from_bytes([1; 16]);

    #[tokio::test]
    async fn a_read_and_the_wait_for_others_have_one_time_limit() {
        let find: Arc<Find<()>> = Arc::new(|_| Box::pin(std::future::pending()));
        let reads = StoreReads::new("keys", Duration::from_millis(10), find);
        let read = reads.read(KEY, Instant::now()).await;
        assert_eq!(read.map_err(|reject| reject.reason), Err(Reason::StoreUnavailable));
        let _all = reads.requests.acquire_many(MAX_READS as u32).await.expect("never closed");
        let read = reads.read_for_stream(KEY).await;
        assert_eq!(read.map_err(|reject| reject.reason), Err(Reason::StoreUnavailable));
        assert_eq!(reads.counts(), [("ok", 0), ("failed", 2)]);
        assert_eq!(reads.streams.available_permits(), MAX_STREAM_READS);
    }
}

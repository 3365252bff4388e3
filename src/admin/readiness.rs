//! The result of the last check of the store, for probes and scrapers.
//!
//! A check writes to the database. Probes need no token, so without this, each of them could cost a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::telemetry::metrics::Metrics;

/// How long a result is used.
const MAX_AGE: Duration = Duration::from_secs(1);

/// A time and its result. `None`: the store works. Otherwise, the reason why not.
type Checked = (Instant, Option<String>);

#[derive(Default)]
pub struct Readiness {
    last: Arc<Mutex<Option<Checked>>>,
    /// What the last scrape found.
    is_ready: AtomicBool,
}

impl Readiness {
    pub fn register(self: &Arc<Self>, metrics: &mut Metrics) {
        let this = self.clone();
        let help = "1 if /readyz returned 200 at this scrape, otherwise 0";
        metrics.gauge("ready", help, move || f64::from(u8::from(this.is_ready.load(Ordering::Relaxed))));
    }

    /// For the scrape that follows.
    pub(super) fn set(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// Runs `check`, unless the last result is at most a second old. Concurrent calls share one check. It ends also if
    /// the client disconnects: otherwise each client that does not wait would cost a check.
    pub(super) async fn result(&self, check: impl Future<Output = Option<String>> + Send + 'static) -> Option<String> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < MAX_AGE
        {
            return result.clone();
        }
        let checked = tokio::spawn(async move {
            let result = check.await;
            *last = Some((Instant::now(), result.clone()));
            result
        });
        checked.await.unwrap_or_else(|error| Some(format!("store: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn concurrent_probes_share_one_check() {
        let readiness = Readiness::default();
        let checks = Arc::new(AtomicUsize::new(0));
        let probe = || {
            let checks = checks.clone();
            readiness.result(async move {
                tokio::task::yield_now().await;
                checks.fetch_add(1, Ordering::Relaxed);
                Some("locked".to_owned())
            })
        };
        let (first, second, third) = tokio::join!(probe(), probe(), probe());
        assert!([first, second, third, probe().await].iter().all(|result| result.as_deref() == Some("locked")));
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        *readiness.last.lock().await = Some((Instant::now() - MAX_AGE, Some("locked".to_owned())));
        assert_eq!(readiness.result(async { None }).await, None, "the old result is not used");
    }

    #[tokio::test]
    async fn a_client_that_does_not_wait_shares_its_check() {
        let readiness = Readiness::default();
        let checks = Arc::new(AtomicUsize::new(0));
        let probe = || {
            let checks = checks.clone();
            readiness.result(async move {
                checks.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                None
            })
        };
        for _ in 0..10 {
            tokio::select! {
                biased;
                _ = probe() => {}
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(probe().await, None);
        assert_eq!(checks.load(Ordering::Relaxed), 1);
    }
}

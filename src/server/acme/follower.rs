//! Follows what other gateways do: a validation that one of them has begun can arrive here.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::entries::Entries;

/// How often the store is read for changes of other gateways.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Between two reads, however often a connection asks for one.
const SHORTEST: Duration = Duration::from_millis(100);
/// How often a store is read that no other gateway uses: a validation that is not known here is not there either.
const ALONE: Duration = Duration::from_mins(1);

/// Reads until it is dropped.
pub async fn follow(entries: Arc<Entries>) {
    let certificates = entries.certificates.clone();
    let mut wanted = entries.wanted.subscribe();
    let mut has_failed = false;
    loop {
        let is_idle = wanted.borrow_and_update().names.is_empty();
        if is_idle {
            // An error means that the gateway ends.
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        }
        match entries.read().await {
            Ok(()) => has_failed = false,
            Err(error) if !has_failed => {
                tracing::warn!(%error, "cannot read the ACME certificates of the store; those in use stay");
                has_failed = true;
            }
            Err(_) => {}
        }
        let interval = if entries.store.freshness().is_some() { INTERVAL } else { ALONE };
        // Elapsed: nothing has asked.
        let _ = timeout(interval, certificates.asked()).await;
        sleep(SHORTEST).await;
    }
}

//! Says in the journal when requests with tokens begin to get 503 because the revocations are too old, and when they
//! are served again. Once each: a request that is rejected has its line in the access log.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Freshness;
use crate::types::clock::every;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(250);

/// `None`: this gateway is alone, and always knows all revocations.
pub(super) async fn report(freshness: Option<Arc<Freshness>>) {
    let Some(freshness) = freshness else { return };
    let mut due = every(INTERVAL);
    let mut was_stale = false;
    loop {
        due.tick().await;
        let is_stale = freshness.is_stale();
        if is_stale == was_stale {
            continue;
        }
        was_stale = is_stale;
        match (is_stale, freshness.serves_stale) {
            (true, false) => tracing::error!(
                reason = freshness.staleness(),
                "requests with tokens get 503 (revocations_stale), except on routes with on_stale = \"serve\""
            ),
            (true, true) => tracing::error!(
                reason = freshness.staleness(),
                "tokens that were revoked elsewhere are accepted, except on routes with on_stale = \"deny\""
            ),
            (false, _) => tracing::info!("all revocations are known again: requests with tokens are served as before"),
        }
    }
}

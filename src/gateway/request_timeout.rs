//! `timeouts.request`

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::gateway::forward::Forwarded;
use crate::types::reject::{Reason, Reject};

/// Waits for the response until `time` has passed since the request came.
pub(super) async fn within(
    time: Duration,
    started: Instant,
    mut responding: Pin<&mut impl Future<Output = Result<Forwarded, Reject>>>,
    is_grpc_call: &AtomicBool,
) -> Result<Forwarded, Reject> {
    match tokio::time::timeout_at((started + time).into(), responding.as_mut()).await {
        Ok(result) => result,
        // A call may last, and may get no response before its client has sent everything.
        Err(_) if is_grpc_call.load(Ordering::Relaxed) => responding.await,
        Err(_) => Err(Reject::new(Reason::RequestTimeout, format!("no response within {}ms", time.as_millis()))),
    }
}

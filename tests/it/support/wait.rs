//! Waits for conditions, so that no test has to guess how long something takes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::wire::TIMEOUT;

/// How long to wait between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` holds. Panics with `what` if it does not within [`TIMEOUT`].
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_ok(what, async || condition().then_some(()).ok_or(String::new())).await;
}

/// Waits until `check` succeeds, and returns its value. Panics with `what` and the last error if it does not within
/// [`TIMEOUT`].
pub async fn eventually_ok<T>(what: &str, check: impl AsyncFnMut() -> Result<T, String>) -> T {
    eventually_within(TIMEOUT, what, check).await
}

/// As [`eventually_ok`], with another timeout.
pub async fn eventually_within<T>(
    timeout: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) => assert!(started.elapsed() < timeout, "not within {timeout:?}: {what}\n{error}"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Polls a future that waits for nothing but other threads until it is ready.
pub fn run_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            return outcome;
        }
    }
}

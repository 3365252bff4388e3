//! Clients that ask on, however often they are told 429: the next such answers wait.
//!
//! To refuse is cheap, and not free: a client with a hundred connections that asks as fast as it is refused keeps a worker busy.
//! Who waits for an answer asks nothing on HTTP/1.1, and on HTTP/2 only as long as it has streams.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::ConnectionSettings;
use super::request_heads::Exchange;
use crate::types::reject::Reason;

/// So many in a row on one connection are answered at once. Whoever heeds Retry-After is never told so twice.
const AT_ONCE: u32 = 10;

/// Of the requests that may be under way, a fourth may be held back: what is over that is answered at once, so that those who
/// are not let in do not keep out those who are.
const PART: usize = 4;

/// Where any number may be under way.
const MANY: usize = 10_000;

/// Those who began to wait together do not end together, in so many steps.
const STEPS: u32 = 16;

pub struct RetryDelay {
    time: Duration,
    room: Semaphore,
    step: AtomicU32,
}

impl RetryDelay {
    pub fn new(settings: &ConnectionSettings) -> Self {
        let room = if settings.concurrent_requests == 0 { MANY } else { settings.concurrent_requests / PART };
        RetryDelay {
            time: settings.retry_delay,
            room: Semaphore::new(room.min(Semaphore::MAX_PERMITS)),
            step: AtomicU32::new(0),
        }
    }

    /// What an answer waits for that tells a client once more that it asks too often. `is_shared_proxy`: does its connection bring
    /// the requests of many clients?
    pub(super) fn wait(
        &self,
        rejected: Option<Reason>,
        exchange: &Exchange,
        is_shared_proxy: impl FnOnce() -> bool,
    ) -> Option<impl Future<Output = ()>> {
        let is_limited = rejected.is_some_and(Reason::is_limit);
        if exchange.limited(is_limited) < AT_ONCE || self.time.is_zero() || is_shared_proxy() {
            return None;
        }
        let place = self.room.try_acquire().ok()?;
        let step = self.step.fetch_add(1, Ordering::Relaxed) % STEPS;
        Some(async move {
            tokio::time::sleep(self.time + self.time * step / STEPS).await;
            drop(place);
        })
    }
}

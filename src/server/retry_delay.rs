//! Delays the responses 429 to clients that ignore `Retry-After`.
//!
//! A rejection is cheap, but not free: a client with a hundred connections that repeats each rejected request at once
//! keeps a worker busy. A client that waits for a response sends no other request over HTTP/1.1, and over HTTP/2 only
//! as many as it has streams.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::exchange::Exchange;
use super::settings::ConnectionSettings;
use crate::types::reject::Reason;

/// How many responses 429 in a row are sent without delay on one connection. A client that heeds Retry-After never gets
/// two.
const UNDELAYED: u32 = 10;

/// One in this many of `limits.concurrent_requests` may be a delayed response. Any other is sent at once, so that
/// rejected requests do not keep out others.
const DELAYED_PART: usize = 4;

/// Maximum delayed responses if `limits.concurrent_requests` is 0.
const DEFAULT_DELAYED: usize = 10_000;

/// The delay varies in this many steps, so that responses delayed at the same time do not end at the same time.
const STEPS: u32 = 16;

pub struct RetryDelay {
    delay: Duration,
    slots: Semaphore,
    step: AtomicU32,
}

impl RetryDelay {
    pub fn new(settings: &ConnectionSettings) -> Self {
        let slots = match settings.concurrent_requests {
            0 => DEFAULT_DELAYED,
            requests => requests / DELAYED_PART,
        };
        RetryDelay {
            delay: settings.retry_delay,
            slots: Semaphore::new(slots.min(Semaphore::MAX_PERMITS)),
            step: AtomicU32::new(0),
        }
    }

    /// Returns the delay of a response with this reason, if it has one. `is_shared_proxy` says whether the connection
    /// carries the requests of many clients.
    pub(super) fn wait(
        &self,
        rejected: Option<Reason>,
        exchange: &Exchange,
        is_shared_proxy: impl FnOnce() -> bool,
    ) -> Option<impl Future<Output = ()>> {
        let is_limited = rejected.is_some_and(Reason::is_limit);
        if exchange.count_limited(is_limited) < UNDELAYED || self.delay.is_zero() || is_shared_proxy() {
            return None;
        }
        let slot = self.slots.try_acquire().ok()?;
        let step = self.step.fetch_add(1, Ordering::Relaxed) % STEPS;
        Some(async move {
            tokio::time::sleep(self.delay + self.delay * step / STEPS).await;
            drop(slot);
        })
    }
}

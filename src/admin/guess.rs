//! Wrong admin tokens: limited for each address, and logged.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};

/// The minimum time between two log messages, so that wrong tokens from many addresses do not fill the log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

pub struct WrongTokens {
    /// `admin.wrong_tokens`
    limiter: Option<Limiter>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    last: Option<Instant>,
    /// Wrong tokens since the last message.
    unlogged: u64,
}

impl WrongTokens {
    /// `None` for no limit.
    pub fn new(rate: Option<Rate>) -> Self {
        WrongTokens { limiter: rate.map(Limiter::new), log: Mutex::default() }
    }

    /// Rejects a call if its address has sent too many wrong tokens. This comes before the token is compared: a right
    /// token would otherwise look different from a wrong one.
    pub(super) fn check(&self, address: IpAddr, now: Uptime) -> Result<(), Reject> {
        match self.limiter.as_ref().and_then(|limiter| limiter.retry_after(address, now)) {
            None => Ok(()),
            Some(wait) => Err(Reject { retry_after: Some(wait), ..Reason::AdminLimited.into() }),
        }
    }

    pub(super) fn count(&self, address: IpAddr, now: Uptime) {
        if let Some(limiter) = &self.limiter {
            limiter.take(address, now);
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            log.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut log.unlogged);
        log.last = Some(Instant::now());
        tracing::warn!(%address, unlogged, "a wrong admin token");
    }
}

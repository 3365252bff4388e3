//! Wrong admin tokens: limited for each address, and logged.
//!
//! The first one of a burst gets a line of its own at once, and the others a line together within some seconds.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};

/// The minimum time between two messages about one wrong token, so that those from many addresses do not fill the log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

pub struct WrongTokens {
    /// `admin.wrong_tokens`
    limiter: Option<Limiter>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    last: Option<Instant>,
    /// Since the last message.
    unlogged: Unlogged,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unlogged {
    wrong: u64,
    /// Calls that were rejected without a look at their token.
    limited: u64,
}

impl WrongTokens {
    /// `None` for no limit.
    pub fn new(rate: Option<Rate>) -> Self {
        WrongTokens { limiter: rate.map(Limiter::new), log: Mutex::default() }
    }

    /// Rejects a call if its address has sent too many wrong tokens. This comes before the token is compared with
    /// those of the operators: a right one would otherwise look different from a wrong one.
    pub(crate) fn check(&self, address: IpAddr, now: Uptime) -> Result<(), Reject> {
        match self.limiter.as_ref().and_then(|limiter| limiter.retry_after(address, now)) {
            None => Ok(()),
            Some(wait) => {
                self.log.lock().unlogged.limited += 1;
                Err(Reject::from(Reason::AdminLimited).with_retry_after(wait))
            }
        }
    }

    pub(crate) fn count(&self, address: IpAddr, now: Uptime) {
        if let Some(limiter) = &self.limiter {
            limiter.take(address, now);
        }
        let mut log = self.log.lock();
        if log.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            log.unlogged.wrong += 1;
            return;
        }
        log.last = Some(Instant::now());
        tracing::warn!(%address, "a wrong admin token");
    }

    /// Logs how many wrong tokens had no message of their own. Called every few seconds.
    pub fn log_others(&self) {
        let Unlogged { wrong, limited } = self.take_unlogged();
        if wrong > 0 || limited > 0 {
            tracing::warn!(
                wrong_tokens = wrong,
                unchecked_calls = limited,
                "more wrong admin tokens; calls beyond admin.wrong_tokens were rejected without a look at their token"
            );
        }
    }

    fn take_unlogged(&self) -> Unlogged {
        std::mem::take(&mut self.log.lock().unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_token_is_in_a_message() {
        let tokens = WrongTokens::new(Some(Rate { burst: 3, interval: Duration::from_mins(1) }));
        let address = IpAddr::from([192, 0, 2, 1]);
        let now = Uptime::default();
        for _ in 0..30 {
            if tokens.check(address, now).is_ok() {
                tokens.count(address, now);
            }
        }
        assert_eq!(tokens.take_unlogged(), Unlogged { wrong: 2, limited: 27 }, "the first one has its own message");
        assert_eq!(tokens.take_unlogged(), Unlogged::default());
    }
}

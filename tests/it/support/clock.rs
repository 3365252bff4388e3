//! A clock that tests move by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock, UnixTime};

pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Starts at the real time, because TLS certificates are checked against the system's clock.
    pub fn new() -> Self {
        // A whole second, because the timestamps in tokens have no fractions.
        ManualClock(AtomicU64::new(SystemClock.now().as_secs() * 1000))
    }

    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Moves the clock back, as an administrator or NTP can do.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixTime {
        UnixTime::from_millis(self.0.load(Ordering::SeqCst))
    }
}

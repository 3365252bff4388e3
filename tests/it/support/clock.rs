//! A clock that stands still until it is moved.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock, UnixTime};

pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Begins at the real time: what is not under its control (TLS certificates) has to agree with it.
    pub fn new() -> Self {
        // At a whole second, so that "a second later" is what it says.
        ManualClock(AtomicU64::new(SystemClock.now().as_secs() * 1000))
    }

    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// As an administrator or NTP does.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixTime {
        UnixTime::from_millis(self.0.load(Ordering::SeqCst))
    }
}

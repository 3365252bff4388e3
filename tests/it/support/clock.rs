//! A clock that tests move by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock, UnixTime, Uptime};

pub struct ManualClock {
    /// Milliseconds since 1970.
    time: AtomicU64,
    /// Milliseconds since the start.
    uptime: AtomicU64,
}

impl ManualClock {
    /// Starts at the real time, because TLS certificates are checked against the system's clock.
    pub fn new() -> Self {
        // A whole second, because the timestamps in tokens have no fractions.
        ManualClock { time: AtomicU64::new(SystemClock.now().as_secs() * 1000), uptime: AtomicU64::new(60_000) }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.uptime.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        self.set_forward(by);
    }

    /// Moves the clock forward, as an administrator or NTP can do. No time passes.
    pub fn set_forward(&self, by: Duration) {
        self.time.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Moves the clock back. No time passes.
    pub fn set_back(&self, by: Duration) {
        self.time.fetch_sub(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixTime {
        UnixTime::from_millis(self.time.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Uptime {
        Uptime::from_micros(self.uptime.load(Ordering::SeqCst) * 1000)
    }
}

//! Time that also passes while the machine is suspended.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time of CLOCK_BOOTTIME, in microseconds. Neither a step of the system clock nor a suspended machine nor a stopped
/// process holds it up, so that old knowledge looks old right after a pause. [`super::clock::Uptime`] does not count a
/// suspended machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct BootTime(u64);

impl BootTime {
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let micros = now.tv_sec.unsigned_abs().saturating_mul(1_000_000) + now.tv_nsec.unsigned_abs() / 1000;
        BootTime(micros)
    }

    pub const fn from_micros(micros: u64) -> Self {
        BootTime(micros)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;
    fn add(self, span: Duration) -> BootTime {
        BootTime(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

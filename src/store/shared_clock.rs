//! The clock of a gateway that shares its store: that of the store.
//!
//! All gateways then agree which of two sessions is older than a mass revocation, when a session ends, and when a key
//! is due, however wrong the clocks of their machines are. They agree as exactly as they measure, so that the store
//! itself measures the grace period of a refresh (`postgres/clock.rs`).

use std::sync::Arc;
use std::time::Duration;

use crate::store::freshness::Freshness;
use crate::store::store_time::MAX_OFFSET;
use crate::types::clock::{Clock, UnixTime, Uptime};

/// More is not the way to the store, but a store that hangs.
const MAX_UNCERTAINTY: Duration = Duration::from_secs(1);

/// The uptime of this machine, plus its measured distance from the clock of the store. A step of the clock of this
/// machine therefore changes nothing, not even until the next poll. While the store is away, the last distance stays.
pub struct SharedClock {
    local: Arc<dyn Clock>,
    freshness: Arc<Freshness>,
}

impl SharedClock {
    pub fn new(local: Arc<dyn Clock>, freshness: Arc<Freshness>) -> Self {
        SharedClock { local, freshness }
    }
}

impl Clock for SharedClock {
    fn now(&self) -> UnixTime {
        // Before the first poll, nothing is served.
        self.freshness.store_time.now().unwrap_or_else(|| self.local.now())
    }

    /// One millisecond more, because times are cut to milliseconds.
    fn uncertainty(&self) -> Duration {
        (self.freshness.store_time.error() + Duration::from_millis(1)).min(MAX_UNCERTAINTY)
    }

    /// One gateway is ahead of the store, and the other one behind it.
    fn max_difference(&self) -> Duration {
        2 * MAX_UNCERTAINTY
    }

    /// Of a clock that is further away, this gateway is not ready.
    fn machine_ahead(&self) -> Duration {
        let micros = (-self.freshness.store_time.offset()).max(0).unsigned_abs();
        Duration::from_micros(micros).min(MAX_OFFSET)
    }

    fn is_confirmed(&self) -> bool {
        let store_time = &self.freshness.store_time;
        store_time.now().is_some() && store_time.not_ready().is_none()
    }

    fn is_of_system(&self) -> bool {
        self.local.is_of_system()
    }

    fn uptime(&self) -> Uptime {
        self.local.uptime()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::boot_time::BootTime;

    #[test]
    fn the_time_is_that_of_the_store() {
        let freshness = Arc::new(Freshness::new(Duration::from_secs(30), false, false));
        let clock = SharedClock::new(Arc::new(OldMachine), freshness.clone());
        assert_eq!(clock.now(), OldMachine.now(), "before the first poll");
        let year_2000 = UnixTime::from_secs(946_684_800);
        let uptime = i64::try_from(BootTime::now().as_micros()).expect("some years");
        freshness.store_time.set(946_684_800_000_000 - uptime, Duration::from_millis(3));
        let passed = clock.now().since(year_2000);
        assert!(clock.now() >= year_2000 && passed < Duration::from_secs(5), "{passed:?}");
        assert_eq!(clock.uncertainty(), Duration::from_millis(4));
        freshness.store_time.set(0, Duration::from_mins(1));
        assert_eq!(clock.uncertainty(), MAX_UNCERTAINTY);
    }

    struct OldMachine;

    impl Clock for OldMachine {
        fn now(&self) -> UnixTime {
            UnixTime::default()
        }

        fn uptime(&self) -> Uptime {
            Uptime::from_secs(1_000)
        }
    }

    #[test]
    fn the_uptime_is_that_of_this_machine() {
        let freshness = Arc::new(Freshness::new(Duration::from_secs(30), false, false));
        freshness.store_time.set(60_000_000, Duration::ZERO);
        assert_eq!(SharedClock::new(Arc::new(OldMachine), freshness).uptime(), Uptime::from_secs(1_000));
    }
}

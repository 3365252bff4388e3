//! Time: whole milliseconds since 1970 in UTC.
//!
//! `gateway/mod.rs` reads the clock once for each request and passes it down as `now`; no decision reads the clock
//! itself. One request therefore sees one time, and tests can check both sides of every boundary.
//!
//! Tokens and sessions end at a [`UnixTime`]. It can be set, back and forward. What only needs a duration (limits,
//! penalties, cooldowns) measures with [`Uptime`], which cannot.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::boot_time::BootTime;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The end of time: never.
    pub const MAX: UnixTime = UnixTime(u64::MAX);

    pub const fn from_millis(millis: u64) -> Self {
        UnixTime(millis)
    }

    /// From whole seconds, the unit of JWT's NumericDate. Saturates at [`UnixTime::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        UnixTime(secs.saturating_mul(1000))
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// The first whole second that does not begin before this time.
    pub const fn to_next_second(self) -> Self {
        UnixTime::from_secs(self.0.div_ceil(1000))
    }

    /// Parses RFC 3339. `None` for other text, and for times before 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok().map(UnixTime)
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: UnixTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates, so that a very long lifetime does not wrap into the past.
impl Add<Duration> for UnixTime {
    type Output = UnixTime;
    fn add(self, span: Duration) -> UnixTime {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        UnixTime(self.0.saturating_add(millis))
    }
}

impl Sub<Duration> for UnixTime {
    type Output = UnixTime;
    fn sub(self, span: Duration) -> UnixTime {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        UnixTime(self.0.saturating_sub(millis))
    }
}

/// RFC 3339 with milliseconds, in UTC: `2026-11-20T23:05:21.042Z`.
impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        match time {
            Some(time) => write!(f, "{time:.3}"),
            None => f.write_str("never"),
        }
    }
}

/// How long the process has run, in microseconds. No step of the system clock changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Uptime(u64);

impl Uptime {
    pub const fn from_secs(secs: u64) -> Self {
        Uptime(secs.saturating_mul(1_000_000))
    }

    pub const fn from_micros(micros: u64) -> Self {
        Uptime(micros)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The duration since `earlier`; zero if `earlier` is later: another thread may have read the clock later.
    pub fn since(self, earlier: Uptime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Uptime {
    type Output = Uptime;
    fn add(self, span: Duration) -> Uptime {
        Uptime(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Uptime {
    type Output = Uptime;
    fn sub(self, span: Duration) -> Uptime {
        Uptime(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Longer than a time service needs to correct a wrong clock, as that of a machine that has just started.
pub const CORRECTION_TIME: Duration = Duration::from_mins(10);

/// When the process first asked for its uptime.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The source of `now`. Tests use a clock that they set.
pub trait Clock: Send + Sync {
    fn now(&self) -> UnixTime;

    /// How far [`Clock::now`] can be from that of other gateways on the same store.
    fn uncertainty(&self) -> Duration {
        Duration::ZERO
    }

    /// How far the clocks of two gateways on the same store can be from each other.
    fn max_difference(&self) -> Duration {
        Duration::ZERO
    }

    /// How far the clock of this machine is ahead of [`Clock::now`].
    fn machine_ahead(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns true if another clock says about the same. If there is none: if a time service had the time to correct
    /// this one.
    fn is_confirmed(&self) -> bool {
        false
    }

    /// Returns true unless a test sets the clock. Then it can be compared with that of a store.
    fn is_of_system(&self) -> bool {
        false
    }

    /// Moves forward only, also when the system clock is set.
    fn uptime(&self) -> Uptime {
        Uptime(u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// The system clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixTime {
        // A clock before 1970 counts as 1970. Every token is then not valid yet, which fails closed.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn is_confirmed(&self) -> bool {
        BootTime::now() >= BootTime::default() + CORRECTION_TIME
    }

    fn is_of_system(&self) -> bool {
        true
    }
}

/// The time of a transaction, on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionTime {
    /// By the system clock. Sessions expire by it.
    pub now: UnixTime,
    /// The time of the store, which no step of the system clock changes. The grace period of a refresh is measured by
    /// it. With a clock that a test sets: the same as `now`, until that is set back.
    pub steady: UnixTime,
}

/// For a system clock that was never set back.
impl From<UnixTime> for TransactionTime {
    fn from(now: UnixTime) -> Self {
        TransactionTime { now, steady: now }
    }
}

/// Reads [`TransactionTime`]. While the system clock is behind an earlier reading, `steady` advances with the uptime.
pub struct SteadyClock {
    clock: Arc<dyn Clock>,
    /// The reading with which the system clock was ahead of all others.
    latest: Mutex<(UnixTime, Uptime)>,
}

impl SteadyClock {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let latest = Mutex::new((clock.now(), clock.uptime()));
        SteadyClock { clock, latest }
    }

    /// See [`Clock::uncertainty`].
    pub fn uncertainty(&self) -> Duration {
        self.clock.uncertainty()
    }

    /// See [`Clock::machine_ahead`].
    pub fn machine_ahead(&self) -> Duration {
        self.clock.machine_ahead()
    }

    pub fn read(&self) -> TransactionTime {
        let mut latest = self.latest.lock();
        let now = self.clock.now();
        let uptime = self.clock.uptime();
        let steady = latest.0 + uptime.since(latest.1);
        if now <= steady {
            return TransactionTime { now, steady };
        }
        *latest = (now, uptime);
        now.into()
    }

    /// As [`SteadyClock::read`], but with the time of the store as `steady`. A clock that a test sets counts instead.
    pub fn read_with(&self, of_store: Option<UnixTime>) -> TransactionTime {
        let time = self.read();
        let of_store = if self.clock.is_of_system() { of_store } else { None };
        TransactionTime { steady: of_store.unwrap_or(time.steady), ..time }
    }
}

/// A tick in each period, the first immediately, for background tasks. After a late tick the next one comes a whole
/// period later; missed ticks are skipped.
pub fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Milliseconds of the system clock and of the uptime.
    #[derive(Default)]
    struct TestClock(AtomicU64, AtomicU64);

    impl Clock for TestClock {
        fn now(&self) -> UnixTime {
            UnixTime::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn uptime(&self) -> Uptime {
            Uptime::from_micros(self.1.load(Ordering::Relaxed) * 1000)
        }
    }

    #[test]
    fn a_steady_clock_goes_on_when_the_clock_is_set_back() {
        let clock = Arc::new(TestClock::default());
        let steady = SteadyClock::new(clock.clone());
        for (now, uptime, expected) in [
            (1_000, 10, 1_000),
            (1_005, 15, 1_005),
            // Set back, then read again before and after the system clock has caught up.
            (500, 15, 1_005),
            (510, 25, 1_015),
            (1_010, 525, 1_515),
            // Set forward.
            (9_000, 530, 9_000),
            (1_020, 535, 9_005),
        ] {
            clock.0.store(now, Ordering::Relaxed);
            clock.1.store(uptime, Ordering::Relaxed);
            let [now, expected] = [now, expected].map(UnixTime::from_millis);
            assert_eq!(steady.read(), TransactionTime { now, steady: expected });
        }
    }

    #[test]
    fn the_time_of_the_store_counts_unless_a_test_sets_the_clock() {
        let of_store = UnixTime::from_secs(7);
        let real = SteadyClock::new(Arc::new(SystemClock));
        let time = real.read_with(Some(of_store));
        assert!(time.steady == of_store && time.now > of_store, "{time:?}");
        assert!(real.read_with(None).steady >= time.now);
        let set = SteadyClock::new(Arc::<TestClock>::default());
        assert_eq!(set.read_with(Some(of_store)), UnixTime::default().into());
    }

    #[test]
    fn times_saturate_and_print_as_rfc_3339() {
        assert_eq!(UnixTime::MAX + Duration::from_secs(1), UnixTime::MAX);
        assert_eq!(UnixTime::from_secs(1) - Duration::from_secs(2), UnixTime::default());
        assert_eq!(UnixTime::from_millis(1_700_000_000_042).to_string(), "2023-11-14T22:13:20.042Z");
        assert_eq!(UnixTime::parse("2023-11-14T22:13:20.042Z"), Some(UnixTime::from_millis(1_700_000_000_042)));
        assert_eq!(UnixTime::parse("2023-11-14T23:13:20+01:00"), Some(UnixTime::from_secs(1_700_000_000)));
        assert!(["", "never", "1700000000", "1969-12-31T23:59:59Z"].iter().all(|text| UnixTime::parse(text).is_none()));
        assert_eq!(UnixTime::MAX.to_string(), "never");
    }
}

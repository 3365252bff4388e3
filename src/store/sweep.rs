//! Deletes old rows, as slowly as their number allows, so that requests do not wait for it.
//!
//! Deleting a row changes a page in each index of SQLite, and these pages are far apart. A large sweep would therefore
//! write megabytes in a commit that refreshes wait for. The sweep deletes a few rows at a time and then pauses.
//!
//! The pause follows the backlog: while the oldest row has waited for less than a minute, a sweep uses 2 % of the time
//! of the store. For each 15 s more, it uses twice as much, up to a third. So it finds the rate at which rows expire,
//! and the oldest row has waited for some two minutes then.
//!
//! One gateway at a time sweeps, by a lease.

use std::time::Duration;

use crate::store::api::StoreUpkeep;
use crate::store::error::StoreError;
use crate::store::expired::{Backlog, Expired};
use crate::types::boot_time::BootTime;
use crate::types::clock::{Clock, UnixTime};

/// The lease.
const LEASE: &str = "sweep";
/// Before a lease ends.
const RENEWAL: Duration = Duration::from_secs(5);
/// How many rows of each table are counted at most.
pub const MAX_COUNTED: usize = 100_000;
/// From one count to the next in a long sweep.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// For how long a sweep ignores that the clock was set forward.
const DISTRUST: Duration = Duration::from_mins(10);
/// Between two reads of the clock, it may gain so much on the uptime without having been set.
const MAX_STEP: Duration = Duration::from_secs(1);
/// Maximum pause, so that one slow write does not stop the sweep for long.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Deletes all rows that no longer matter, if it is the turn of this gateway. Returns how many it has deleted.
pub async fn sweep(
    store: &dyn StoreUpkeep,
    clock: &dyn Clock,
    time: &mut SweepTime,
    backlog: &Backlog,
) -> Result<usize, StoreError> {
    let mut total = 0;
    let mut pace = Pace::default();
    let mut held = None;
    let mut counted = None;
    loop {
        if is_due(held, RENEWAL) {
            held = Some(BootTime::now());
            if !store.hold_lease(LEASE.to_owned()).await? {
                backlog.set(Expired::default());
                return Ok(total);
            }
        }
        if is_due(counted, COUNT_INTERVAL) {
            counted = Some(BootTime::now());
            pace = Pace::of(count(store, time.read(clock), backlog).await?);
        }
        let began = BootTime::now();
        let deleted = store.sweep(time.read(clock), pace.rows).await?;
        total += deleted;
        backlog.count_swept(deleted);
        if deleted < pace.rows {
            // Without a deleted row, the first count still holds.
            if total > 0 {
                count(store, time.read(clock), backlog).await?;
            }
            return Ok(total);
        }
        tokio::time::sleep(pace.pause_after(BootTime::now().since(began))).await;
    }
}

fn is_due(last: Option<BootTime>, interval: Duration) -> bool {
    last.is_none_or(|last| BootTime::now().since(last) >= interval)
}

/// Returns how long the oldest row has waited.
async fn count(store: &dyn StoreUpkeep, now: UnixTime, backlog: &Backlog) -> Result<Duration, StoreError> {
    let expired = store.expired(now, MAX_COUNTED).await?;
    backlog.set(expired);
    Ok(expired.age(now))
}

/// The time at the slowest gateway on the store. What has ended here may still hold there: a used proof or assertion,
/// for example, must be remembered until no gateway accepts it.
pub fn slowest_now(clock: &dyn Clock) -> UnixTime {
    clock.now() - clock.max_difference()
}

/// The time by which rows are swept. A step forward of the clock counts only when it has lasted for [`DISTRUST`]: a
/// revocation that was deleted because a clock was wrong for a second does not come back.
#[derive(Default)]
pub struct SweepTime {
    /// A time that was read, and the uptime of this machine then.
    trusted: Option<(UnixTime, BootTime)>,
    /// Since when the clock has been ahead of it.
    ahead_since: Option<BootTime>,
}

impl SweepTime {
    fn read(&mut self, clock: &dyn Clock) -> UnixTime {
        let now = slowest_now(clock);
        // A test that sets the clock means it.
        if clock.is_of_system() { self.at(now, BootTime::now()) } else { now }
    }

    fn at(&mut self, now: UnixTime, uptime: BootTime) -> UnixTime {
        let expected = self.trusted.map_or(now, |(time, at)| time + uptime.since(at));
        if now.since(expected) > MAX_STEP {
            let ahead_since = *self.ahead_since.get_or_insert(uptime);
            if uptime.since(ahead_since) < DISTRUST {
                return expected;
            }
        }
        self.trusted = Some((now, uptime));
        self.ahead_since = None;
        now
    }
}

/// How fast to sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    /// Rows of each table that one step deletes.
    rows: usize,
    /// How much of the time it uses.
    share: f64,
}

impl Pace {
    const SLOWEST: Pace = Pace { rows: 100, share: 0.02 };
    const FASTEST: Pace = Pace { rows: 400, share: 1.0 / 3.0 };
    /// A row that waits for so long is no backlog: sweeps begin every 30 seconds.
    const USUAL: Duration = Duration::from_mins(1);
    /// Twice as fast for each of them.
    const STEP: u64 = 15;
    /// Beyond [`Pace::FASTEST`].
    const MAX_STEPS: u64 = 10;

    /// `age`: how long the oldest row has waited.
    fn of(age: Duration) -> Pace {
        let Some(late) = age.checked_sub(Self::USUAL) else { return Self::SLOWEST };
        let steps = (late.as_secs() / Self::STEP).min(Self::MAX_STEPS);
        let share = Self::SLOWEST.share * f64::from(1_u32 << steps);
        Pace { rows: Self::FASTEST.rows, share: share.min(Self::FASTEST.share) }
    }

    fn pause_after(self, step: Duration) -> Duration {
        step.mul_f64(1.0 / self.share - 1.0).min(MAX_PAUSE)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::SLOWEST
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::freshness::Freshness;
    use crate::store::shared_clock::SharedClock;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> UnixTime {
            UnixTime::from_secs(1_000)
        }
    }

    #[test]
    fn rows_stay_until_the_slowest_gateway_needs_none_of_them() {
        assert_eq!(slowest_now(&Fixed), Fixed.now(), "one gateway has one clock");
        // Of two gateways, this one can be a second ahead of the store, and the other one a second behind.
        let shared = SharedClock::new(Arc::new(Fixed), Arc::new(Freshness::new(Duration::from_secs(30), false, false)));
        assert_eq!(shared.now(), Fixed.now());
        assert_eq!(slowest_now(&shared), UnixTime::from_secs(998));
    }

    #[test]
    fn a_clock_that_was_set_forward_counts_after_ten_minutes() {
        let clock = |secs: u64| UnixTime::from_secs(1_000_000 + secs);
        let uptime = |secs: u64| BootTime::from_micros(secs * 1_000_000);
        let mut time = SweepTime::default();
        let day = 86_400;
        for (passed, set, counts) in [
            (0, 0, 0),
            (30, 0, 0),
            (60, 1, 1),
            // For a second.
            (90, day, 1),
            (91, 1, 1),
            // For good.
            (100, day, 1),
            (699, day, 1),
            (700, day, day),
            (730, day, day),
            // Set back.
            (760, 0, 0),
        ] {
            assert_eq!(time.at(clock(passed + set), uptime(passed)), clock(passed + counts), "{passed}");
        }
    }

    #[test]
    fn a_sweep_without_a_backlog_uses_two_percent_of_the_time() {
        for age in [0, 30, 59] {
            let pace = Pace::of(Duration::from_secs(age));
            assert_eq!(pace, Pace::SLOWEST);
            assert_eq!(pace.pause_after(Duration::from_millis(2)), Duration::from_millis(98));
            assert_eq!(pace.pause_after(Duration::from_secs(1)), MAX_PAUSE);
        }
    }

    #[test]
    fn the_pause_follows_the_backlog() {
        let pauses = [60, 75, 90, 105, 120, 150, 86_400].map(|age| {
            let pace = Pace::of(Duration::from_secs(age));
            assert_eq!(pace.rows, 400);
            pace.pause_after(Duration::from_millis(100)).as_millis()
        });
        assert_eq!(pauses, [4_900, 2_400, 1_150, 525, 212, 200, 200]);
    }
}

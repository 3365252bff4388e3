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
use crate::types::clock_step::{Doubt, Reading};

/// The lease.
const LEASE: &str = "sweep";
/// Before a lease ends.
const RENEWAL: Duration = Duration::from_secs(5);
/// How many rows of each table are counted at most.
pub const MAX_COUNTED: usize = 100_000;
/// From one count to the next in a long sweep.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
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
        let Some(now) = time.read(clock) else { return Ok(total) };
        if is_due(held, RENEWAL) {
            held = Some(BootTime::now());
            if !store.hold_lease(LEASE.to_owned()).await? {
                backlog.set(Expired::default());
                return Ok(total);
            }
        }
        if is_due(counted, COUNT_INTERVAL) {
            counted = Some(BootTime::now());
            pace = Pace::of(count(store, now, backlog).await?);
        }
        let began = BootTime::now();
        let deleted = store.sweep(now, pace.rows).await?;
        total += deleted;
        backlog.count_swept(deleted);
        if deleted < pace.rows {
            // Without a deleted row, the first count still holds.
            if total > 0 {
                count(store, now, backlog).await?;
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

/// The time by which rows are swept. A step forward of the clock counts only when it has lasted, see [`Doubt`]: a
/// revocation that was deleted because a clock was wrong for a second does not come back. The first reading counts at
/// once only if it is confirmed: see [`Clock::is_confirmed`].
#[derive(Default)]
pub struct SweepTime {
    trusted: Option<Reading>,
    doubt: Doubt,
}

impl SweepTime {
    /// `None`: the clock is not trusted yet.
    fn read(&mut self, clock: &dyn Clock) -> Option<UnixTime> {
        let time = slowest_now(clock);
        // A test that sets the clock means it.
        if !clock.is_of_system() {
            return Some(time);
        }
        self.add(Reading { time, uptime: BootTime::now() }, clock.is_confirmed())
    }

    fn add(&mut self, read: Reading, is_confirmed: bool) -> Option<UnixTime> {
        let is_trusted = match self.trusted {
            Some(trusted) => !trusted.was_set_forward(read),
            None => is_confirmed,
        };
        if !is_trusted && self.doubt.holds(read) {
            return self.trusted.map(|trusted| trusted.at(read.uptime));
        }
        self.trusted = Some(read);
        self.doubt.end();
        Some(read.time)
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

    fn reading(time: u64, uptime: u64) -> Reading {
        Reading { time: UnixTime::from_secs(1_000_000 + time), uptime: BootTime::from_micros(uptime * 1_000_000) }
    }

    const DAY: u64 = 86_400;

    #[test]
    fn a_clock_that_was_set_forward_counts_after_ten_minutes() {
        let mut time = SweepTime::default();
        for (passed, set, counts) in [
            (0, 0, 0),
            (30, 0, 0),
            (60, 1, 1),
            // For a second.
            (90, DAY, 1),
            (91, 1, 1),
            // For nine minutes, and further ahead then.
            (100, DAY, 1),
            (640, 2 * DAY, 1),
            // For good.
            (650, DAY, 1),
            (1_249, DAY, 1),
            (1_250, DAY, DAY),
            (1_280, DAY, DAY),
            // Set back.
            (1_310, 0, 0),
        ] {
            let expected = reading(passed + counts, 0).time;
            assert_eq!(time.add(reading(passed + set, passed), true), Some(expected), "{passed}");
        }
    }

    #[test]
    fn the_first_reading_counts_at_once_only_if_it_is_confirmed() {
        let mut time = SweepTime::default();
        // It is set back to the right time after a while.
        for (passed, set, is_confirmed, counts) in [
            (0, DAY, false, None),
            (60, DAY, false, None),
            (90, 0, false, None),
            (689, 0, false, None),
            (690, 0, false, Some(690)),
            (720, 0, false, Some(720)),
        ] {
            let expected = counts.map(|time| reading(time, 0).time);
            assert_eq!(time.add(reading(passed + set, passed), is_confirmed), expected, "{passed}");
        }
        let mut time = SweepTime::default();
        assert_eq!(time.add(reading(DAY, 0), false), None);
        assert_eq!(time.add(reading(30, 30), true), Some(reading(30, 0).time), "the clocks agree again");
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

//! The time of the database by which the grace period of a refresh is measured. It is never set back.
//!
//! It is the clock of the database, plus the time by which that clock was set back in all: by an administrator, by a
//! time service, or by a failover to a server with a clock that is behind. The table `clock` has this sum, so that the
//! statements of all gateways have one time. Each gateway compares the times that it reads with its uptime. One that
//! finds a step back adds it to the table before it decides anything by the reading.
//!
//! A step forward counts as time that has passed, because a gateway cannot tell it from a pause of its own machine. For
//! `timeouts.store` after it, no refresh counts as reuse.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::freshness::Freshness;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::{self, get};
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// A part of a statement: the two parts of the time, as a table `t`. [`Reading::read`] reads it.
macro_rules! database_time {
    () => {
        "(select (extract(epoch from clock_timestamp()) * 1000)::bigint as clock,
            coalesce((select c.set_back from clock c where c.id = 1), 0) as set_back) t"
    };
}
pub(super) use database_time;

/// Also if another gateway has found the same step, or if the row was deleted.
const RAISE: &str = "insert into clock as c (id, set_back) values (1, $1)
    on conflict (id) do update set set_back = excluded.set_back where c.set_back < excluded.set_back";

/// A time that is read is cut or rounded to milliseconds.
const ROUNDING: i64 = 1_000;
/// Each second of age lets two clocks drift apart by 500 µs at most: as fast as a time service corrects a clock.
const DRIFT_DIVISOR: i64 = 2_000;
/// Smallest step back that is corrected, in microseconds. The grace period of a refresh may be wrong by so much.
const MIN_STEP: i64 = 10_000;
/// Smallest step forward that counts as a pause, in microseconds.
const MIN_JUMP: i64 = 1_000_000;

/// A time of the database, and when this gateway asked for it and got it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The clock plus `set_back`.
    pub(super) time: UnixTime,
    /// What the table has, in milliseconds.
    pub(super) set_back: i64,
    pub(super) sent: BootTime,
    pub(super) answered: BootTime,
}

impl Reading {
    /// From a row with the columns of [`database_time`].
    pub(super) fn read(row: &Row, sent: BootTime, answered: BootTime) -> Result<Reading, StoreError> {
        let set_back: i64 = get(row, "set_back")?;
        let clock: i64 = get(row, "clock")?;
        let time = UnixTime::from_millis(clock.saturating_add(set_back).unsigned_abs());
        Ok(Reading { time, set_back, sent, answered })
    }
}

/// How far the time of the database is ahead of the uptime of this gateway, in microseconds, and when that was known.
#[derive(Clone, Copy)]
struct Bound {
    distance: i64,
    at: BootTime,
}

impl Bound {
    /// How far both clocks can have drifted apart since.
    fn drift(self, now: BootTime) -> i64 {
        micros(now.since(self.at)) / DRIFT_DIVISOR
    }
}

/// What all readings together say. No I/O.
#[derive(Default)]
struct Bounds {
    /// The distance is this at least.
    least: Option<Bound>,
    /// The distance is this at most.
    most: Option<Bound>,
    /// When the time of the database was found to have jumped forward.
    jumped_at: Option<BootTime>,
}

impl Bounds {
    /// Returns what the table must have, if the clock was set back by more than it says. The reading then counts for
    /// nothing.
    fn add(&mut self, reading: &Reading) -> Option<i64> {
        let Reading { sent, answered, .. } = *reading;
        let time = rows::time(reading.time).saturating_mul(1_000);
        let least = time - ROUNDING - since_start(answered);
        let most = time + ROUNDING - since_start(sent);
        let known_least = self.least.map(|bound| bound.distance - bound.drift(answered));
        let known_most = self.most.map(|bound| bound.distance + bound.drift(answered));
        if let Some(step) = known_least.map(|known| known - most).filter(|step| *step > MIN_STEP) {
            return Some(reading.set_back.saturating_add(step / 1_000));
        }
        let has_jumped = known_most.is_some_and(|known| least - known > MIN_JUMP);
        if has_jumped {
            self.jumped_at = Some(answered);
        }
        if known_least.is_none_or(|known| known <= least) {
            self.least = Some(Bound { distance: least, at: answered });
        }
        if has_jumped || known_most.is_none_or(|known| most <= known) {
            self.most = Some(Bound { distance: most, at: answered });
        }
        None
    }

    /// The time of the database now, at least. `None` before the first reading.
    fn now(&self, now: BootTime) -> Option<UnixTime> {
        let least = self.least?;
        let micros = since_start(now) + least.distance - least.drift(now);
        Some(UnixTime::from_millis(micros.max(0).unsigned_abs() / 1_000))
    }
}

/// A step back of the clock that the table lacks.
#[derive(Clone, Copy)]
pub(super) struct SetBack {
    /// What the table must have, in milliseconds.
    total: i64,
    step: Duration,
}

/// The time of the database as this gateway knows it.
pub(super) struct DatabaseClock {
    bounds: Mutex<Bounds>,
    /// For metrics.
    freshness: Arc<Freshness>,
}

impl DatabaseClock {
    pub(super) fn new(freshness: Arc<Freshness>) -> Self {
        DatabaseClock { bounds: Mutex::default(), freshness }
    }

    /// Compares a reading with those of before. If the clock was set back meanwhile, the reading must be repeated after
    /// [`DatabaseClock::write`].
    pub(super) fn compare(&self, reading: &Reading) -> Option<SetBack> {
        let total = self.bounds.lock().add(reading)?;
        Some(SetBack { total, step: Duration::from_millis((total - reading.set_back).unsigned_abs()) })
    }

    /// Writes that the clock was set back, unless another gateway has.
    pub(super) async fn write(&self, session: &Session, found: SetBack) -> Result<(), QueryError> {
        let SetBack { total, step } = found;
        if session.execute(RAISE, &[&total]).await? > 0 {
            tracing::warn!(?step, "the clock of the database was set back; refreshes are measured as if it were not");
            self.freshness.counts.set_back.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The time at which a refresh is decided: at least that of the last rotation. If that lies ahead, a gateway of an
    /// older version wrote it by its own clock, or the clock was set back while no gateway ran.
    pub(super) fn not_before(&self, reading: &Reading, family: &Family) -> UnixTime {
        let Some(rotated_at) = family.last_rotation() else { return reading.time };
        if rotated_at.since(reading.time) > Duration::from_micros(MIN_STEP.unsigned_abs()) {
            self.freshness.counts.ahead.fetch_add(1, Ordering::Relaxed);
        }
        reading.time.max(rotated_at)
    }

    /// The time of the database now, at the earliest. `None` before the first reading.
    pub(super) fn now(&self) -> Option<UnixTime> {
        self.bounds.lock().now(BootTime::now())
    }

    /// Returns true if the time of the database jumped forward within this time: its clock was set, or this machine
    /// was paused.
    pub(super) fn jumped_within(&self, span: Duration) -> bool {
        self.bounds.lock().jumped_at.is_some_and(|at| BootTime::now().since(at) <= span)
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn since_start(at: BootTime) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of the database at the start of this machine, in milliseconds.
    const START: u64 = 1_700_000_000_000;

    /// A reading at `at` milliseconds of uptime, with a round trip of 2 ms. `set`: by how many milliseconds the clock
    /// is ahead of what it was at the start.
    fn reading(at: u64, set: i64, set_back: i64) -> Reading {
        let time = (START + at).saturating_add_signed(set + set_back);
        let near = |millis: u64| BootTime::from_micros(millis * 1_000);
        Reading { time: UnixTime::from_millis(time), set_back, sent: near(at - 1), answered: near(at + 1) }
    }

    #[test]
    fn a_clock_that_was_set_back_is_found_by_the_next_reading() {
        let mut bounds = Bounds::default();
        for at in [1_000, 1_250, 1_500] {
            assert_eq!(bounds.add(&reading(at, 0, 0)), None);
        }
        let found = bounds.add(&reading(1_750, -1_000, 0)).expect("it was set back");
        assert!((990..=1_000).contains(&found), "{found}");
        // Until it is written, each reading finds it.
        assert_eq!(bounds.add(&reading(1_750, -1_000, 0)), Some(found));
        assert_eq!(bounds.add(&reading(2_000, -1_000, found)), None, "it was written, also by another gateway");
        let again = bounds.add(&reading(2_250, -3_000, found)).expect("it was set back again");
        assert!((2_980..=3_000).contains(&again), "{again}");
        let lost = bounds.add(&reading(2_500, -1_000, 0));
        assert!(lost.is_some_and(|lost| lost.abs_diff(found) < 15), "the new primary lacks what was written: {lost:?}");
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_while_counts_as_set_back() {
        let mut bounds = Bounds::default();
        bounds.add(&reading(1_000, 0, 0));
        assert_eq!(bounds.add(&reading(2_000, 500, 0)), None);
        assert!(bounds.add(&reading(3_000, 0, 0)).is_some_and(|found| (490..=500).contains(&found)));
        assert_eq!(bounds.jumped_at, None, "half a second is no pause");
    }

    #[test]
    fn neither_drift_nor_a_slow_database_is_a_step() {
        let mut bounds = Bounds::default();
        bounds.add(&reading(1_000, 0, 0));
        // 400 µs a second, for 1,000 s.
        assert_eq!(bounds.add(&reading(1_001_000, -400, 0)), None);
        let near = |millis: u64| BootTime::from_micros(millis * 1_000);
        let slow = Reading { sent: near(1_001_000), answered: near(1_006_000), ..reading(1_005_990, -400, 0) };
        assert_eq!(bounds.add(&slow), None);
        let early = Reading { sent: near(1_010_000), answered: near(1_015_000), ..reading(1_010_010, -400, 0) };
        assert_eq!(bounds.add(&early), None);
        assert_eq!(bounds.jumped_at, None);
        assert_eq!(bounds.add(&reading(1_020_000, -400, 0)), None);
    }

    #[test]
    fn a_pause_of_this_machine_is_a_jump_of_the_database() {
        let mut bounds = Bounds::default();
        bounds.add(&reading(1_000, 0, 0));
        assert_eq!(bounds.add(&reading(2_000, 14_000, 0)), None);
        assert_eq!(bounds.jumped_at, Some(BootTime::from_micros(2_001_000)));
        bounds.jumped_at = None;
        assert_eq!(bounds.add(&reading(3_000, 14_000, 0)), None);
        assert_eq!(bounds.jumped_at, None, "it counts once");
    }

    #[test]
    fn the_time_of_the_database_is_known_between_readings() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.now(BootTime::from_micros(5_000)), None);
        bounds.add(&reading(1_000, 0, 0));
        let now = bounds.now(BootTime::from_micros(11_000_000)).expect("there was a reading");
        let late = UnixTime::from_millis(START + 11_000).since(now);
        assert!(now < UnixTime::from_millis(START + 11_000) && late < Duration::from_millis(10), "{late:?}");
    }
}

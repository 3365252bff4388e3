//! The follower against single events, and against a model of a database with failovers.

use std::collections::HashSet;
use std::time::Duration;

use super::super::state::{Alarm, FollowerState, INTERVAL, LogEntry, MIN_INTERVAL, Page, Position, Step, Tag};
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

const RETENTION: Duration = Duration::from_hours(1);
const START: UnixTime = UnixTime::from_secs(1_700_000_000);

/// A database, and a clock.
struct Model {
    log: Vec<LogEntry>,
    /// In the log, but their transaction is not visible yet.
    hidden: HashSet<u64>,
    newest: Position,
    now: Duration,
    tags: u8,
    families: u128,
    state: FollowerState,
    applied: HashSet<Revoked>,
    page: usize,
    /// The negative control: a database without tags.
    has_tags: bool,
}

impl Model {
    fn new(page: usize) -> Self {
        let mut model = Model {
            log: Vec::new(),
            hidden: HashSet::new(),
            newest: Position::default(),
            now: Duration::from_secs(1),
            tags: 0,
            families: 0,
            state: FollowerState::new(RETENTION).with_page(page),
            applied: HashSet::new(),
            page,
            has_tags: true,
        };
        assert_eq!(model.poll().alarms, []);
        model
    }

    fn boot_time(&self) -> BootTime {
        BootTime::default() + self.now
    }

    fn time(&self) -> UnixTime {
        START + self.now
    }

    /// Another gateway revokes.
    fn revoke(&mut self) -> Revocation {
        self.families += 1;
        self.write(Revoked::Family(TokenId::from_bytes(self.families.to_be_bytes())))
    }

    fn write(&mut self, what: Revoked) -> Revocation {
        let at = self.time();
        let sequence = self.newest.sequence + 1;
        let revocation = Revocation { sequence, what, at, until: at + RETENTION };
        self.tags = self.tags.wrapping_add(1);
        let tag: Tag = if self.has_tags { [self.tags; 16] } else { [1; 16] };
        self.log.push(LogEntry { revocation: revocation.clone(), tag });
        self.newest = Position { sequence, tag };
        revocation
    }

    /// This gateway revokes.
    fn revoke_here(&mut self) {
        let revocation = self.revoke();
        self.applied.insert(revocation.what.clone());
        self.state.on_own(&revocation, self.boot_time());
    }

    /// A standby without the last `lost` entries becomes the primary.
    fn fail_over(&mut self, lost: usize) {
        self.log.truncate(self.log.len() - lost);
        self.newest = self
            .log
            .last()
            .map_or_else(Position::default, |last| Position { sequence: last.revocation.sequence, tag: last.tag });
        self.hidden.clear();
    }

    fn sweep(&mut self) {
        let now = self.time();
        self.log.retain(|entry| entry.revocation.until >= now);
    }

    fn page(&self) -> Page {
        let from = self.state.read_from();
        let is_visible =
            |entry: &&LogEntry| entry.revocation.sequence >= from && !self.hidden.contains(&entry.revocation.sequence);
        Page { newest: self.newest, entries: self.log.iter().filter(is_visible).take(self.page).cloned().collect() }
    }

    fn poll(&mut self) -> Step {
        self.now += INTERVAL;
        let step = self.state.on_poll(self.page(), self.boot_time(), self.time());
        self.applied.extend(step.apply.iter().map(|each| each.what.clone()));
        step
    }

    /// Polls until the end of the log is read, and writes back what it lacks. Returns the alarms.
    fn catch_up(&mut self) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for _ in 0..10_000 {
            let step = self.poll();
            alarms.extend(step.alarms);
            for lost in step.write_back {
                self.write(lost.what);
            }
            if self.is_complete() && self.state.applied() == self.newest.sequence {
                return alarms;
            }
        }
        panic!("the follower does not catch up");
    }

    fn is_complete(&self) -> bool {
        self.state.complete_at() == Some(self.boot_time())
    }

    fn lacks(&self) -> Option<u64> {
        let visible = self.log.iter().filter(|entry| !self.hidden.contains(&entry.revocation.sequence));
        let mut revocations = visible.map(|entry| &entry.revocation);
        revocations.find(|each| !self.applied.contains(&each.what)).map(|each| each.sequence)
    }
}

#[test]
fn a_poll_applies_what_is_new_and_moves_the_cursor() {
    let mut model = Model::new(10);
    for _ in 0..3 {
        model.revoke();
    }
    let step = model.poll();
    assert_eq!(step.apply.iter().map(|each| each.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((step.alarms, model.state.applied(), model.is_complete()), (vec![], 3, true));
    let step = model.poll();
    assert_eq!((step.apply, model.is_complete()), (vec![], true));
}

#[test]
fn a_full_page_is_followed_by_the_next_one_at_once() {
    let mut model = Model::new(3);
    for _ in 0..6 {
        model.revoke();
    }
    model.poll();
    assert_eq!((model.state.applied(), model.is_complete()), (3, false));
    assert_eq!(model.state.wait(model.boot_time()), Duration::ZERO);
    assert_eq!(model.catch_up(), []);
    assert_eq!(model.state.wait(model.boot_time()), INTERVAL);
}

#[test]
fn a_notification_shortens_the_wait_but_not_below_the_minimum() {
    let mut model = Model::new(10);
    let polled = model.boot_time();
    let five = Duration::from_millis(5);
    model.state.on_wake(polled + five);
    assert_eq!(model.state.wait(polled + five), MIN_INTERVAL - five);
    let late = MIN_INTERVAL * 3;
    model.state.on_wake(polled + late);
    assert_eq!(model.state.wait(polled + late), Duration::ZERO);
    model.state.on_error(polled + late);
    assert_eq!(model.state.wait(polled + late), INTERVAL);
    assert_eq!(model.state.complete_at(), Some(polled));
}

#[test]
fn the_cursor_waits_before_a_gap_until_it_is_filled() {
    let mut model = Model::new(10);
    for _ in 0..3 {
        model.revoke();
    }
    model.hidden.insert(2);
    let complete_at = model.state.complete_at();
    let step = model.poll();
    assert_eq!(step.alarms, [Alarm::Gap { missing: 2 }]);
    assert_eq!(step.apply.len(), 2, "what is there is in force");
    assert_eq!((model.state.applied(), model.state.complete_at()), (1, complete_at), "but the log is not complete");
    assert_eq!(model.poll().alarms, [], "one alarm");
    model.hidden.clear();
    assert_eq!(model.catch_up(), []);
    assert_eq!(model.lacks(), None);
}

#[test]
fn a_gap_that_stays_is_passed_after_a_while() {
    for last in [false, true] {
        let mut model = Model::new(10);
        for _ in 0..3 {
            model.revoke();
        }
        model.hidden.extend([if last { 3 } else { 2 }]);
        let missing = if last { 3 } else { 2 };
        assert_eq!(model.catch_up(), [Alarm::Gap { missing }, Alarm::Gap { missing }]);
        assert!(model.now > Duration::from_secs(10), "{:?}", model.now);
    }
}

#[test]
fn a_log_with_other_entries_is_read_again_and_completed() {
    for written_after in [0, 1, 2, 5] {
        let mut model = Model::new(2);
        for _ in 0..4 {
            model.revoke();
        }
        model.revoke_here();
        model.catch_up();
        let before = model.applied.clone();
        model.revoke_here();
        model.fail_over(3);
        for _ in 0..written_after {
            model.revoke();
        }
        let alarms = model.catch_up();
        let forks = alarms.iter().filter(|alarm| matches!(alarm, Alarm::Fork { .. })).count();
        assert_eq!((forks, alarms.last()), (1, Some(&Alarm::Lost(3))), "{alarms:?}");
        assert!(before.is_subset(&model.applied));
        assert_eq!(model.lacks(), None);
        let log: HashSet<_> = model.log.iter().map(|entry| entry.revocation.what.clone()).collect();
        assert_eq!(log, model.applied, "the database has all again");
    }
}

#[test]
fn an_entry_that_was_deleted_when_it_was_over_is_no_fork() {
    let mut model = Model::new(10);
    model.revoke();
    model.catch_up();
    for _ in 0..2 {
        model.now += RETENTION / 2;
        model.poll();
    }
    model.sweep();
    assert_eq!(model.log.len(), 0);
    for revoked in [false, true] {
        if revoked {
            model.revoke();
        }
        let step = model.poll();
        assert_eq!((step.alarms, step.reloaded, step.apply.len()), (vec![], false, usize::from(revoked)));
        assert!(model.is_complete());
    }
}

#[test]
fn an_entry_that_is_missing_while_it_matters_is_a_fork() {
    for (is_reloaded, is_last_moment) in [(false, false), (true, false), (false, true)] {
        let mut model = Model::new(10);
        let until = model.now + RETENTION;
        model.revoke();
        model.catch_up();
        if is_reloaded {
            model.state.restart();
            assert_eq!(model.poll().alarms, []);
        }
        if is_last_moment {
            model.now += RETENTION / 2;
            model.poll();
            model.now = until - INTERVAL;
        }
        model.log.clear();
        model.revoke();
        assert_eq!(model.poll().alarms, [Alarm::Fork { at: 1, newest: 2 }], "{is_reloaded} {is_last_moment}");
    }
}

#[test]
fn a_lower_watermark_does_not_replace_a_lost_one() {
    let mut model = Model::new(10);
    let mark = |millis| Revoked::Everything { not_after: UnixTime::from_millis(millis) };
    model.write(mark(5));
    model.catch_up();
    model.write(mark(9));
    model.catch_up();
    model.fail_over(1);
    model.write(mark(7));
    assert_eq!(model.catch_up().last(), Some(&Alarm::Lost(1)));
    assert_eq!(model.log.last().map(|entry| entry.revocation.what.clone()), Some(mark(9)));
}

#[test]
fn a_follower_that_was_away_too_long_reads_everything() {
    let mut model = Model::new(10);
    model.revoke();
    model.catch_up();
    model.revoke();
    model.now += RETENTION + Duration::from_secs(1);
    // Sweeps the first entry, as if this gateway did not count any more, and the second one was never read.
    model.revoke();
    model.log.drain(..2);
    let step = model.poll();
    assert_eq!((step.reloaded, step.alarms), (true, vec![]));
    assert_eq!(model.catch_up(), []);
    assert_eq!((model.state.applied(), model.lacks()), (3, None));
}

#[test]
fn what_could_not_be_enforced_is_read_again() {
    let mut model = Model::new(10);
    model.revoke();
    model.poll();
    model.state.restart();
    assert_eq!((model.state.complete_at(), model.state.read_from()), (None, 0));
    let step = model.poll();
    assert_eq!((step.apply.len(), model.is_complete()), (1, true));
}

/// The pseudo-random generator SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % count as u64).unwrap_or_default()
    }
}

/// One random order of revocations, polls, lost polls, failovers, gaps and sweeps. Returns what the follower lacks
/// although it says that it is complete.
fn missed(seed: u64, has_tags: bool) -> Option<u64> {
    let mut random = Random(seed);
    let mut model = Model::new(2 + random.below(5));
    model.has_tags = has_tags;
    let mut hidden_until = Duration::ZERO;
    for _ in 0..60 {
        // The server ends transactions.
        if model.now > hidden_until {
            model.hidden.clear();
        }
        match random.below(16) {
            0..6 => drop(model.revoke()),
            6 => model.revoke_here(),
            7 => drop(model.write(Revoked::Everything { not_after: UnixTime::from_millis(random.below(50) as u64) })),
            8 => model.state.on_error(model.boot_time()),
            9 => {
                // After an old entry, a gap looks like deleted entries.
                let newest = model.newest.sequence;
                let before = model.log.iter().rev().nth(2).map(|entry| entry.revocation.at);
                let is_after_young = before.is_some_and(|at| at + RETENTION / 2 > model.time());
                if newest > model.state.applied() + 1 && is_after_young {
                    model.hidden.insert(newest - 1);
                    hidden_until = model.now + Duration::from_secs(5);
                }
            }
            10 => model.hidden.clear(),
            11 => model.fail_over(random.below(model.log.len().min(4) + 1)),
            12 => {
                model.hidden.clear();
                model.now += RETENTION * random.below(3) as u32 / 2;
                model.sweep();
            }
            _ => {
                for lost in model.poll().write_back {
                    model.write(lost.what);
                }
            }
        }
        if model.is_complete() && model.hidden.is_empty() && model.lacks().is_some() {
            // Written after the poll.
            model.poll();
            if model.is_complete() && model.lacks().is_some() {
                return model.lacks();
            }
        }
    }
    model.hidden.clear();
    model.catch_up();
    model.lacks()
}

#[test]
fn no_order_of_events_makes_the_follower_miss_an_entry() {
    for seed in 0..20_000 {
        assert_eq!(missed(seed, true), None, "seed {seed}");
    }
}

#[test]
fn without_tags_the_model_finds_missed_entries() {
    assert!((0..500).any(|seed| missed(seed, false).is_some()), "the model is too weak");
}

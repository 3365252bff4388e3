//! Timelines, which tell the primary if more than one server accepts changes.
//!
//! A server that was the primary goes on to accept connections and reads after another one was promoted, unless
//! something stops it: the agent of Patroni on its machine may be dead. Without a synchronous standby, it accepts
//! changes too. Each promotion begins a timeline with a higher number.

use std::collections::BTreeMap;

/// What a server that accepts changes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    /// The same for a server and all its physical copies.
    pub(super) system: i64,
    pub(super) number: i32,
}

/// The newest timeline of each system that this gateway has seen.
#[derive(Debug, Default)]
pub(super) struct Newest(BTreeMap<i64, i32>);

impl Newest {
    /// Returns true if this timeline is newer than another one of its system that was seen before.
    pub(super) fn add(&mut self, seen: Timeline) -> bool {
        match self.0.get(&seen.system) {
            Some(newest) if *newest >= seen.number => false,
            older => {
                let is_promoted = older.is_some();
                self.0.insert(seen.system, seen.number);
                is_promoted
            }
        }
    }

    /// Returns true if another server was promoted after the one with this timeline.
    pub(super) fn is_after(&self, timeline: Timeline) -> bool {
        self.0.get(&timeline.system).is_some_and(|newest| *newest > timeline.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_number_of_the_same_system_is_a_promotion() {
        let mut newest = Newest::default();
        let mut add = |system, number| newest.add(Timeline { system, number });
        let found = [add(7, 3), add(7, 3), add(7, 4), add(7, 3), add(8, 1), add(8, 9)];
        assert_eq!(found, [false, false, true, false, false, true]);
    }

    #[test]
    fn only_timelines_of_one_system_are_compared() {
        let mut newest = Newest::default();
        newest.add(Timeline { system: 7, number: 3 });
        for (system, number, is_after) in [(7, 2, true), (7, 3, false), (7, 4, false), (8, 1, false)] {
            assert_eq!(newest.is_after(Timeline { system, number }), is_after, "{system} {number}");
        }
    }
}

//! A log that is read again, and then from its start once more.

use std::time::Duration;

use super::super::state::{Alarm, FollowerState, INTERVAL, LogEntry, Page, Position};
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

const NOW: UnixTime = UnixTime::from_secs(1_700_000_000);

fn entry(number: u8) -> LogEntry {
    let what = Revoked::Family(TokenId::from_bytes([number; 16]));
    let revocation = Revocation { sequence: u64::from(number), what, at: NOW, until: UnixTime::MAX };
    LogEntry { revocation, tag: [number; 16] }
}

fn page(newest: u8, entries: &[u8]) -> Page {
    let newest = Position { sequence: u64::from(newest), tag: [newest; 16] };
    Page { newest, entries: entries.iter().copied().map(entry).collect() }
}

/// The sweep deletes the entry at which the log is read on, and the gateway no longer remembers what was lost.
#[test]
fn a_log_that_is_read_twice_gets_what_it_lacked_at_first() {
    let mut state = FollowerState::new(Duration::from_hours(2)).with_page(2);
    let start = BootTime::now();
    for entries in [&[1, 2][..], &[2, 3], &[3]] {
        state.on_poll(page(3, entries), start, NOW);
    }
    assert_eq!(state.applied(), 3);
    // Entry 3 is lost. The log is read from its start.
    let forked = state.on_poll(page(4, &[]), start + INTERVAL, NOW);
    assert_eq!(forked.alarms, [Alarm::Fork { at: 3, newest: 4 }]);
    state.on_poll(page(4, &[1, 2]), start + INTERVAL, NOW);
    assert_eq!(state.read_from(), 2);
    // What is remembered now is more than an hour younger than what was lost.
    let later = start + Duration::from_hours(3);
    let now = NOW + Duration::from_hours(3);
    state.on_own(&entry(5).revocation, later);
    assert!(state.on_poll(page(5, &[4, 5]), later, now).reloaded, "entry 2 is gone");
    for entries in [[1, 4], [4, 5]] {
        assert_eq!(state.on_poll(page(5, &entries), later, now).write_back, []);
    }
    let step = state.on_poll(page(5, &[5]), later, now);
    assert_eq!((step.write_back, step.alarms), (vec![entry(3).revocation], vec![Alarm::Lost(1)]));
}

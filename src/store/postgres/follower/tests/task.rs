//! The task, poll by poll.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::super::poll::Polled;
use super::super::state::{LogEntry, Page, Position, spread};
use super::super::{FAR, FarClock, Follower, Memory};
use crate::store::api::LogOrder;
use crate::store::freshness::Freshness;
use crate::store::postgres::clock::Reading;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::tests::given::{PostgresServer, settings, shared};
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

fn entry(sequence: u64) -> LogEntry {
    let what = Revoked::Family(TokenId::from_bytes([1; 16]));
    LogEntry { revocation: Revocation { sequence, what, at: UnixTime::default(), until: UnixTime::MAX }, tag: [1; 16] }
}

fn polled(entries: &[u64]) -> Polled {
    let newest = entries.last().map_or_else(Position::default, |last| Position { sequence: *last, tag: [1; 16] });
    let page = Page { newest, entries: entries.iter().copied().map(entry).collect() };
    let now = BootTime::now();
    let reading = Reading { time: UnixTime::default(), set_back: 0, sent: now, answered: now };
    Polled { page, keys: 0, micros: 1_700_000_000_000_000, reading, on: 0, is_written_back: false }
}

/// Other gateways may wait for the acknowledgement of an entry.
#[test]
fn a_poll_that_brought_entries_is_acknowledged_at_once() {
    let freshness = Arc::new(Freshness::new(Duration::from_secs(10), false, false));
    // It connects to nothing.
    let connections = Connections::new(Connector::new(settings(PostgresServer::shared()), None, "a"));
    let enforced: Arc<Mutex<Vec<(u64, LogOrder)>>> = Arc::default();
    let seen = enforced.clone();
    let enforce = Arc::new(move |each: &Revocation, order| seen.lock().push((each.sequence, order)));
    let memory = Memory::new(Duration::from_hours(1));
    let shared = Arc::new(shared(connections.clone(), Arc::default()));
    let mut follower = Follower::new(connections, shared, memory, freshness.clone(), enforce, "a".into());
    let moved = freshness.moved();
    follower.apply(polled(&[])).expect("it is enforced");
    assert!(!freshness.is_loaded(), "the time of the store is not measured yet");
    freshness.store_time.set(0, Duration::ZERO);
    // The first poll has loaded the log.
    for (entries, is_acknowledged) in [(&[][..], true), (&[], false), (&[1], true), (&[1], false), (&[1, 2], true)] {
        follower.apply(polled(entries)).expect("it is enforced");
        let is_moved = pin!(moved.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(is_moved, is_acknowledged, "{entries:?}");
    }
    assert_eq!(*enforced.lock(), [(1, LogOrder::InOrder), (2, LogOrder::InOrder)]);
}

#[test]
fn polls_of_many_gateways_come_up_to_a_fifth_earlier() {
    let wait = Duration::from_millis(250);
    assert_eq!(spread(wait, 0), wait);
    assert_eq!(spread(wait, 128), Duration::from_millis(225));
    assert!(spread(wait, u8::MAX) > Duration::from_millis(200));
}

#[test]
fn clocks_that_differ_are_reported_when_it_begins() {
    let mut clock = FarClock::default();
    let far = i64::try_from(FAR).expect("a second");
    for (offset, is_reported) in
        [(far, false), (far + 1, true), (far + 2, false), (-far - 1, false), (0, false), (-far - 1, true)]
    {
        assert_eq!(clock.begins(offset), is_reported, "{offset}");
    }
}

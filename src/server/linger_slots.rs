//! Slots of a worker for clients of which it discards the rest of a large upload.
//!
//! A client that reconnects again and again leaves many such uploads behind. Together they must not take the time of
//! the clients that are served, and those of one client must not take the slots of the others.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::settings::LingerSettings;
use crate::limits::limiter::Key;
use crate::limits::network::networks;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::limit::Limit;

/// Bytes discarded without a slot, and before each pause.
pub(super) const PIECE: usize = 64 * 1024;

/// How long a client waits for a slot, and how often it looks for one.
pub(super) const SLOT_TIME: Duration = Duration::from_secs(5);
pub(super) const SLOT_INTERVAL: Duration = Duration::from_millis(20);

/// The slots of one worker.
#[derive(Clone)]
pub(super) struct LingerSlots {
    pub(super) settings: LingerSettings,
    slots: Arc<Mutex<Slots>>,
    metrics: Arc<WorkerMetrics>,
}

impl LingerSlots {
    /// What one unit of a client's share pauses after [`PIECE`], so that all clients together discard at most 64 MiB a
    /// second. Without pauses, four clients that never stop take a whole core.
    const PAUSE: Duration = Duration::from_millis(1);

    pub(super) fn new(settings: LingerSettings, metrics: Arc<WorkerMetrics>) -> Self {
        LingerSlots { settings, slots: Arc::default(), metrics }
    }

    /// For one connection of a client.
    pub(super) fn share(&self, client: IpAddr) -> Arc<Share> {
        // The largest network of the address: a customer with a whole /48 has 65,536 of the smallest.
        let owner = networks(client).last().map_or(Key::from(client), |network| network.key);
        Arc::new(Share { slots: self.clone(), owner, slot: Mutex::default(), piece: AtomicUsize::new(0) })
    }
}

/// What one connection has of the slots: at most one, for all its streams.
pub(super) struct Share {
    slots: LingerSlots,
    owner: Key,
    slot: Mutex<Weak<Slot>>,
    /// Bytes since the last pause.
    piece: AtomicUsize,
}

impl Share {
    pub(super) fn settings(&self) -> LingerSettings {
        self.slots.settings
    }

    /// Counts a client of which no more is discarded.
    pub(super) fn count_full(&self) {
        self.slots.metrics.limit_hit(Limit::DiscardedBodySize);
    }

    /// Returns the slot of this connection, or takes one if it has none.
    pub(super) fn slot(&self) -> Option<Arc<Slot>> {
        let mut current = self.slot.lock();
        if let Some(slot) = current.upgrade() {
            return Some(slot);
        }
        let number = self.slots.slots.lock().take(self.owner, Instant::now())?;
        let slot = Arc::new(Slot { number, slots: self.slots.clone() });
        *current = Arc::downgrade(&slot);
        Some(slot)
    }

    /// Counts discarded bytes. Returns how long to pause after them.
    pub(super) fn count(&self, bytes: usize) -> Option<Duration> {
        if self.piece.fetch_add(bytes, Ordering::Relaxed) + bytes < PIECE {
            return None;
        }
        self.piece.store(0, Ordering::Relaxed);
        let streams = self.slot.lock().strong_count();
        let units = self.slots.slots.lock().units(self.owner, Instant::now()) * streams.max(1);
        Some(LingerSlots::PAUSE * u32::try_from(units).unwrap_or(u32::MAX))
    }
}

/// A slot, until it is dropped or another client takes it.
pub(super) struct Slot {
    number: u64,
    slots: LingerSlots,
}

impl Slot {
    /// Records discarded bytes. Returns false if another client has this slot now.
    pub(super) fn record(&self, bytes: usize) -> bool {
        self.slots.slots.lock().record(self.number, bytes, Instant::now())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.slots.lock().held.retain(|held| held.number != self.number);
    }
}

#[derive(Default)]
struct Slots {
    /// The oldest first.
    held: Vec<Held>,
    taken: u64,
}

struct Held {
    number: u64,
    owner: Key,
    /// When the interval began in which `bytes` are counted.
    since: Instant,
    bytes: usize,
}

impl Slots {
    const MAX: usize = 64;

    /// Takes a free slot, or one of a client with less claim to it. Returns its number.
    fn take(&mut self, owner: Key, now: Instant) -> Option<u64> {
        if self.held.len() >= Self::MAX {
            let loser = self.loser(owner, now)?;
            self.held.remove(loser);
        }
        self.taken += 1;
        self.held.push(Held { number: self.taken, owner, since: now, bytes: 0 });
        Some(self.taken)
    }

    /// First, a client that hardly sends: to hold a slot must cost more than a byte now and then. Otherwise the client
    /// with the most slots, if it still has no fewer than `owner` after that.
    fn loser(&self, owner: Key, now: Instant) -> Option<usize> {
        if let Some(slow) = self.held.iter().position(|held| held.is_slow(now)) {
            return Some(slow);
        }
        let counts = self.counts();
        let (most, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let own = counts.get(&owner).copied().unwrap_or_default();
        // Its newest: that one has read the least for nothing.
        if *count > own + 1 { self.held.iter().rposition(|held| held.owner == *most) } else { None }
    }

    fn counts(&self) -> HashMap<Key, usize> {
        let mut counts = HashMap::new();
        self.held.iter().for_each(|held| *counts.entry(held.owner).or_default() += 1);
        counts
    }

    /// Each client gets the same share of the rate, however many slots it has. One that hardly sends uses no share:
    /// with slots at 64 addresses, it would otherwise slow the others down until their time is over.
    fn units(&self, owner: Key, now: Instant) -> usize {
        let sends = |held: &&Held| held.owner != owner && !held.is_slow(now);
        let others: HashSet<Key> = self.held.iter().filter(sends).map(|held| held.owner).collect();
        let own = self.held.iter().filter(|held| held.owner == owner).count();
        (others.len() + 1) * own.max(1)
    }

    fn record(&mut self, number: u64, bytes: usize, now: Instant) -> bool {
        let Some(held) = self.held.iter_mut().find(|held| held.number == number) else { return false };
        if now.duration_since(held.since) >= Held::INTERVAL {
            (held.since, held.bytes) = (now, 0);
        }
        held.bytes = held.bytes.saturating_add(bytes);
        true
    }
}

impl Held {
    /// A client that sends fewer bytes per second loses its slot if all are in use. Slower than any network of today.
    const MIN_RATE: f64 = 16.0 * 1024.0;
    /// Bytes are counted for this long.
    const INTERVAL: Duration = Duration::from_secs(2);
    /// An interval shorter than this says nothing.
    const AT_LEAST: Duration = Duration::from_secs(1);

    fn is_slow(&self, now: Instant) -> bool {
        let time = now.duration_since(self.since);
        time >= Self::AT_LEAST && (self.bytes as f64) < Self::MIN_RATE * time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> LingerSlots {
        LingerSlots::new(LingerSettings { max_bytes: usize::MAX, max_time: Duration::MAX }, Arc::default())
    }

    /// The slots of `count` connections of `client`.
    fn take(slots: &LingerSlots, client: &str, count: usize) -> Vec<Arc<Slot>> {
        let client = client.parse().expect("an address");
        (0..count).map_while(|_| slots.share(client).slot()).collect()
    }

    #[test]
    fn the_client_with_the_most_slots_gives_one_up() {
        let slots = slots();
        let mut many = take(&slots, "192.0.2.1", 100);
        assert_eq!(many.len(), Slots::MAX, "no other client waits");
        let few = take(&slots, "192.0.2.2", 2);
        assert_eq!(few.len(), 2);
        let has_lost: Vec<_> = many.iter().map(|slot| !slot.record(1)).collect();
        assert!(has_lost[Slots::MAX - 2..].iter().all(|lost| *lost), "its newest ones");
        assert_eq!(has_lost.iter().filter(|lost| **lost).count(), 2);
        assert!(take(&slots, "192.0.2.1", 1).is_empty());
        many.truncate(1);
        assert!(few.iter().all(|slot| slot.record(1)));
        assert_eq!(take(&slots, "192.0.2.3", 100).len(), Slots::MAX - 3, "those that were dropped are free");
    }

    #[test]
    fn no_client_takes_the_last_slot_of_another() {
        let slots = slots();
        let all: Vec<_> = (0..Slots::MAX).flat_map(|host| take(&slots, &format!("192.0.2.{host}"), 1)).collect();
        assert_eq!(all.len(), Slots::MAX);
        assert!(take(&slots, "192.0.2.255", 1).is_empty());
    }

    #[test]
    fn the_networks_of_a_48_are_one_client() {
        let slots = slots();
        let held: Vec<_> = (0..100).flat_map(|subnet| take(&slots, &format!("2001:db8:0:{subnet:x}::1"), 1)).collect();
        assert_eq!(held.len(), Slots::MAX);
        assert_eq!(take(&slots, "2001:db8:1::1", 1).len(), 1);
    }

    #[test]
    fn a_client_that_hardly_sends_loses_its_slot_first() {
        let mut slots = Slots::default();
        let start = Instant::now();
        let owner = |number: usize| Key::from(number as u128);
        let numbers: Vec<_> = (0..Slots::MAX).filter_map(|number| slots.take(owner(number), start)).collect();
        let later = start + Duration::from_millis(1500);
        for number in &numbers {
            let bytes = if number == &numbers[40] { 1_000 } else { 100_000 };
            assert!(slots.record(*number, bytes, later));
        }
        assert_eq!(slots.take(owner(1000), later), Some(numbers[63] + 1));
        assert!(!slots.record(numbers[40], 1, later) && slots.record(numbers[39], 1, later));
        assert_eq!(slots.take(owner(1001), later), None);
        // A burst counts for a short time only.
        assert!(slots.record(numbers[0], 1, later + Duration::from_secs(1)));
        assert!(slots.held[0].is_slow(later + Duration::from_secs(2)) && !slots.held[0].is_slow(later));
    }

    #[test]
    fn clients_that_hardly_send_have_no_share_of_the_rate() {
        let mut slots = Slots::default();
        let start = Instant::now();
        let owner = |number: usize| Key::from(number as u128);
        let numbers: Vec<_> = (0..10).filter_map(|number| slots.take(owner(number), start)).collect();
        assert_eq!(slots.units(owner(0), start), 10, "it is not known yet");
        let later = start + Duration::from_millis(1500);
        assert!(slots.record(numbers[1], 100_000, later));
        assert_eq!(slots.units(owner(0), later), 2);
        assert_eq!(slots.units(owner(1), later), 1);
        assert_eq!(slots.units(owner(10), later), 2);
    }

    #[test]
    fn clients_share_the_rate_and_streams_share_a_slot() {
        let slots = slots();
        let share = slots.share([192, 0, 2, 1].into());
        assert_eq!(share.count(PIECE - 1), None);
        assert_eq!(share.count(1), Some(Duration::from_millis(1)));
        let streams: Vec<_> = (0..10).filter_map(|_| share.slot()).collect();
        assert_eq!((streams.len(), slots.slots.lock().held.len()), (10, 1));
        let others = take(&slots, "192.0.2.2", 20);
        assert_eq!(share.count(PIECE), Some(Duration::from_millis(20)), "two clients, ten streams");
        drop((streams, others));
        assert!(slots.slots.lock().held.is_empty());
    }
}

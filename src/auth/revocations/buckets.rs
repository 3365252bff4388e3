//! The entries of the revocation set: many of them in one entry of moka.
//!
//! Whatever it holds, an entry of moka takes at least 305 bytes: 2,000,000 revocations would take 612 MB.
//! So an entry of moka is a bucket: the revocations with the same hash of 16 bits, 28 bytes each, as a sorted list. A
//! change replaces the list. So a look-up takes no lock, and finds the list before or after the change.
//!
//! Here moka drops no bucket by itself: it has neither a capacity nor a lifetime. [`Buckets::remove_expired`] does.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use moka::Equivalent;
use moka::sync::Cache;

use crate::types::clock::UnixTime;

/// Revokes the tokens with this key that are dated at or before `not_after`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Entry {
    key: u128,
    not_after: UnixTime,
    /// In seconds after [`Buckets::started`].
    expires: u32,
}

/// The entries of which the keys have the same hash, sorted by key.
type Bucket = ArcSwap<Vec<Entry>>;

/// The key of a bucket in moka, which leads to the bucket as well.
struct Place {
    number: u16,
    bucket: Arc<Bucket>,
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.number == other.number
    }
}

impl Eq for Place {}

/// Finds the bucket of this number if `wants` returns true for it.
///
/// moka looks into the bucket where it lies: `contains_key` copies nothing, records nothing, and does no maintenance on
/// the caller's thread, as `get` would.
struct Wanted<F> {
    number: u16,
    wants: F,
}

impl<F> Hash for Wanted<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<F: Fn(&Arc<Bucket>) -> bool> Equivalent<Place> for Wanted<F> {
    fn equivalent(&self, place: &Place) -> bool {
        self.number == place.number && (self.wants)(&place.bucket)
    }
}

/// Where the entry of this key is, or where it belongs.
fn find(entries: &[Entry], key: u128) -> Result<usize, usize> {
    entries.binary_search_by_key(&key, |entry| entry.key)
}

fn whole_seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

pub(super) struct Buckets {
    buckets: Cache<Place, (), RandomState>,
    /// Chooses the bucket of a key. Random, so that no issuer can choose tokens that all come into one bucket.
    numbers: RandomState,
    /// Held for each change.
    changing: Mutex<()>,
    /// The clock of this process, which an administrator cannot set back.
    started: Instant,
    /// The number of entries in all buckets.
    count: AtomicU64,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Buckets {
            buckets: Cache::builder().build_with_hasher(RandomState::default()),
            numbers: RandomState::default(),
            changing: Mutex::default(),
            started: Instant::now(),
            count: AtomicU64::new(0),
        }
    }

    /// Revokes the tokens with this key that are dated at or before `not_after`, for this time and up to a second
    /// longer. What was revoked before stays revoked.
    pub(super) fn insert(&self, key: u128, not_after: UnixTime, life: Duration) {
        if life.is_zero() {
            return;
        }
        let elapsed = self.started.elapsed();
        let expires = whole_seconds(elapsed.saturating_add(life)).saturating_add(1);
        let new = Entry { key, not_after, expires };
        let number = self.number(key);
        let _changing = self.change();
        let Some(bucket) = self.bucket(number) else {
            let bucket = Arc::new(ArcSwap::from_pointee(vec![new]));
            self.buckets.insert(Place { number, bucket }, ());
            self.count.fetch_add(1, Ordering::AcqRel);
            return;
        };
        self.replace(&bucket, |entries| add(entries, new, whole_seconds(elapsed)));
    }

    fn bucket(&self, number: u16) -> Option<Arc<Bucket>> {
        let found = Cell::new(None);
        let wants = |bucket: &Arc<Bucket>| {
            found.set(Some(bucket.clone()));
            true
        };
        // moka may also show one that was removed.
        self.buckets.contains_key(&Wanted { number, wants }).then(|| found.take()).flatten()
    }

    /// Returns true if a token with this key and date is revoked.
    pub(super) fn revokes(&self, key: u128, dated: UnixTime) -> bool {
        // A change counts an entry before `Revocations::epoch` tells of it.
        if self.count() == 0 {
            return false;
        }
        let wants = |bucket: &Arc<Bucket>| {
            let entries = bucket.load();
            let Ok(place) = find(&entries, key) else { return false };
            let Some(&Entry { not_after, expires, .. }) = entries.get(place) else { return false };
            dated <= not_after && whole_seconds(self.started.elapsed()) < expires
        };
        self.buckets.contains_key(&Wanted { number: self.number(key), wants })
    }

    /// Frees the memory of expired entries.
    pub(super) fn remove_expired(&self) {
        let now = whole_seconds(self.started.elapsed());
        for (place, ()) in &self.buckets {
            if place.bucket.load().iter().any(|entry| entry.expires <= now) {
                self.remove_from(place.number, now);
            }
        }
        self.buckets.run_pending_tasks();
    }

    fn remove_from(&self, number: u16, now: u32) {
        let _changing = self.change();
        // Looked up again: meanwhile it may have gone, and another one come.
        let Some(bucket) = self.bucket(number) else { return };
        let left = self.replace(&bucket, |entries| alive(entries, now, 0));
        if left == 0 {
            self.buckets.invalidate(&Wanted { number, wants: |_: &Arc<Bucket>| true });
        }
    }

    /// Replaces the entries of a bucket, and returns how many it has now. To be called while changes are held.
    fn replace(&self, bucket: &Bucket, by: impl FnOnce(&[Entry]) -> Vec<Entry>) -> usize {
        let before = bucket.load_full();
        let after = by(&before);
        let (count_before, count_after) = (before.len(), after.len());
        bucket.store(Arc::new(after));
        self.count.fetch_add(count_after as u64, Ordering::AcqRel);
        self.count.fetch_sub(count_before as u64, Ordering::AcqRel);
        count_after
    }

    fn number(&self, key: u128) -> u16 {
        (self.numbers.hash_one(key) >> 48) as u16
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of entries, including expired ones that were not removed yet.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

/// The entries that have not expired, with room for more.
fn alive(entries: &[Entry], now: u32, more: usize) -> Vec<Entry> {
    let mut alive = Vec::with_capacity(entries.len() + more);
    alive.extend(entries.iter().filter(|entry| entry.expires > now));
    alive
}

/// The entries that have not expired, and a new one. An entry only becomes stronger: neither a revocation with a
/// shorter life nor a lower watermark that comes late makes revoked tokens valid again.
fn add(entries: &[Entry], new: Entry, now: u32) -> Vec<Entry> {
    let mut entries = alive(entries, now, 1);
    match find(&entries, new.key) {
        Err(place) => entries.insert(place, new),
        Ok(place) => {
            if let Some(entry) = entries.get_mut(place) {
                let Entry { key, not_after, expires } = *entry;
                *entry = Entry { key, not_after: not_after.max(new.not_after), expires: expires.max(new.expires) };
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MINUTE: Duration = Duration::from_mins(1);
    const NEVER: UnixTime = UnixTime::MAX;

    impl Buckets {
        fn pass(&mut self, span: Duration) {
            self.started -= span;
        }

        fn revokes_any(&self, key: u128) -> bool {
            self.revokes(key, UnixTime::default())
        }
    }

    #[test]
    fn an_entry_takes_28_bytes() {
        assert_eq!(size_of::<Entry>(), 28);
    }

    /// Each bucket has entries of both kinds.
    #[test]
    fn expired_entries_leave_a_bucket_and_the_others_stay() {
        const COUNT: u128 = 300_000;
        let mut buckets = Buckets::new();
        let life = |key: u128| if key % 2 == 0 { HOUR } else { MINUTE };
        (0..COUNT).for_each(|key| buckets.insert(key, NEVER, life(key)));
        assert_eq!(buckets.count(), COUNT as u64);
        assert!((0..COUNT).all(|key| buckets.revokes_any(key)) && !buckets.revokes_any(COUNT));
        buckets.remove_expired();
        assert_eq!(buckets.count(), COUNT as u64, "none has expired");
        buckets.pass(2 * MINUTE);
        assert!((0..COUNT).all(|key| buckets.revokes_any(key) == (key % 2 == 0)), "also before they are removed");
        buckets.remove_expired();
        assert_eq!(buckets.count(), COUNT as u64 / 2);
        assert!((0..COUNT).all(|key| buckets.revokes_any(key) == (key % 2 == 0)));
        buckets.pass(HOUR);
        buckets.remove_expired();
        assert_eq!((buckets.count(), buckets.buckets.entry_count()), (0, 0), "moka is empty");
        buckets.insert(1, NEVER, MINUTE);
        assert!(buckets.revokes_any(1) && !buckets.revokes_any(2), "a bucket comes back");
    }

    #[test]
    fn a_change_of_a_bucket_drops_what_has_expired() {
        let mut buckets = Buckets::new();
        (0..200_000).for_each(|key| buckets.insert(key, NEVER, MINUTE));
        buckets.pass(2 * MINUTE);
        (200_000..400_000).for_each(|key| buckets.insert(key, NEVER, MINUTE));
        assert!(buckets.count() < 250_000, "{}", buckets.count());
    }

    /// One thread removes what has expired, again and again, while another one revokes.
    #[test]
    fn no_revocation_is_lost_while_expired_entries_are_removed() {
        const COUNT: u128 = 100_000;
        let mut buckets = Buckets::new();
        (0..COUNT).for_each(|key| buckets.insert(key, NEVER, MINUTE));
        buckets.pass(2 * MINUTE);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    buckets.remove_expired();
                }
            });
            for key in COUNT..2 * COUNT {
                buckets.insert(key, NEVER, HOUR);
                assert!(buckets.revokes_any(key), "{key}");
            }
            is_over.store(true, Ordering::Release);
        });
        assert!((COUNT..2 * COUNT).all(|key| buckets.revokes_any(key)));
        buckets.remove_expired();
        assert_eq!(buckets.count(), COUNT as u64);
    }

    #[test]
    fn an_entry_only_becomes_stronger() {
        let mut buckets = Buckets::new();
        let [early, late] = [100, 200].map(UnixTime::from_secs);
        buckets.insert(1, late, HOUR);
        buckets.insert(1, early, 2 * HOUR);
        buckets.insert(1, NEVER, Duration::ZERO);
        assert_eq!(buckets.count(), 1);
        assert!(buckets.revokes(1, late) && !buckets.revokes(1, UnixTime::from_secs(201)));
        buckets.pass(HOUR + MINUTE);
        assert!(buckets.revokes(1, late));
    }

    #[test]
    fn an_entry_without_end_stays() {
        let mut buckets = Buckets::new();
        buckets.insert(1, NEVER, Duration::MAX);
        buckets.pass(Duration::from_hours(24 * 365 * 10));
        buckets.remove_expired();
        assert!(buckets.revokes_any(1));
    }
}

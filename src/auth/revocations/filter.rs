//! Says of nearly every name that it is certainly not in the revocation set, for the price of one cache line.
//!
//! Nearly every token that is looked up is not revoked, and in a set of a million entries that look-up leads through memory that
//! nobody has in the cache. This is a blocked Bloom filter over the same names: two bytes for each, so that a million fit
//! where the processor looks first. It only ever answers "certainly not" or "look": the set behind it stays exact.
//!
//! A bit cannot be taken back. So the table is made anew from the set when it is full, and when most of what it knows has
//! expired.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;

/// Bits of a block: a cache line.
const BLOCK: usize = 512;
/// For each name: with four of them set, one look in three hundred is in vain. More would make that rarer and each look slower.
const BITS_A_NAME: usize = 16;
const BITS_SET: u32 = 4;
/// Names that the smallest table is good for: 128 KiB.
const LEAST: usize = 1 << 16;

pub(super) struct Filter {
    table: ArcSwap<Table>,
    hasher: RandomState,
    /// Held while a name is added. Nobody who looks waits for it.
    adding: Mutex<()>,
}

struct Table {
    /// A power of two of them.
    blocks: Box<[Block]>,
    names: AtomicUsize,
}

#[derive(Default)]
#[repr(align(64))]
struct Block([AtomicU64; BLOCK / 64]);

impl Filter {
    pub(super) fn new() -> Self {
        Filter {
            table: ArcSwap::from_pointee(Table::for_names(LEAST)),
            hasher: RandomState::default(),
            adding: Mutex::default(),
        }
    }

    /// What it knows at this moment, for all the names of one token.
    pub(super) fn look(&self) -> FilterProbe<'_> {
        FilterProbe { table: self.table.load(), hasher: &self.hasher }
    }

    /// `all`: every name of the set, this one among them, for when the table has to grow.
    pub(super) fn add<I: IntoIterator<Item = u128>>(&self, name: u128, all: impl FnOnce() -> I) {
        let _alone = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load();
        table.add(self.hasher.hash_one(name));
        if table.names.load(Ordering::Relaxed) > table.room() {
            self.renew(2 * table.room(), all());
        }
    }

    /// Forgets what has expired, if that is most of what it knows. `live`: names in the set.
    pub(super) fn tidy<I: IntoIterator<Item = u128>>(&self, live: usize, all: impl FnOnce() -> I) {
        let is_stale = |table: &Table| table.names.load(Ordering::Relaxed) > 2 * live + LEAST;
        if !is_stale(&self.table.load()) {
            return;
        }
        let _alone = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if is_stale(&self.table.load()) {
            self.renew(live, all());
        }
    }

    fn renew(&self, room: usize, names: impl IntoIterator<Item = u128>) {
        let table = Table::for_names(room.max(LEAST));
        names.into_iter().for_each(|name| table.add(self.hasher.hash_one(name)));
        self.table.store(Arc::new(table));
    }
}

pub(super) struct FilterProbe<'f> {
    table: Guard<Arc<Table>>,
    hasher: &'f RandomState,
}

impl FilterProbe<'_> {
    /// Is there any point in looking for this name?
    pub(super) fn may_have(&self, name: u128) -> bool {
        self.table.may_have(self.hasher.hash_one(name))
    }
}

impl Table {
    fn for_names(names: usize) -> Self {
        let blocks = (names * BITS_A_NAME / BLOCK).next_power_of_two();
        Table { blocks: (0..blocks).map(|_| Block::default()).collect(), names: AtomicUsize::new(0) }
    }

    fn room(&self) -> usize {
        self.blocks.len() * BLOCK / BITS_A_NAME
    }

    fn add(&self, hash: u64) {
        let block = self.block(hash);
        for (word, bit) in bits(hash) {
            block.0[word].fetch_or(bit, Ordering::Release);
        }
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    fn may_have(&self, hash: u64) -> bool {
        let block = self.block(hash);
        bits(hash).all(|(word, bit)| block.0[word].load(Ordering::Acquire) & bit != 0)
    }

    fn block(&self, hash: u64) -> &Block {
        &self.blocks[hash as usize & (self.blocks.len() - 1)]
    }
}

/// Which bits of its block a name sets: nine bits of a second hash say each.
fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    // The first one's low bits have chosen the block. An odd multiplier (of the golden ratio) spreads the others.
    let spread = hash.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..BITS_SET).map(move |number| {
        let place = (spread >> (number * 9)) as usize % BLOCK;
        (place / 64, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_never_denied_and_little_else_is_looked_for() {
        let filter = Filter::new();
        let names = || (0..300_000u128).map(|number| number * 3);
        for (count, name) in (1..).zip(names()) {
            filter.add(name, || names().take(count));
        }
        assert!(filter.table.load().room() >= 300_000, "it has grown");
        let look = filter.look();
        assert!(names().all(|name| look.may_have(name)));
        let in_vain = names().filter(|name| look.may_have(name + 1)).count();
        assert!(in_vain < 300_000 / 100, "{in_vain} looks in vain");
    }

    #[test]
    fn what_has_expired_is_forgotten_once_it_is_the_greater_part() {
        let filter = Filter::new();
        let added = LEAST as u128 + 100;
        (0..added).for_each(|name| filter.add(name, || 0..=name));
        filter.tidy(added as usize / 2, || -> [u128; 0] { panic!("half of it lives: nothing is made anew") });
        filter.tidy(10, || 0..10);
        let look = filter.look();
        assert!((0..10).all(|name| look.may_have(name)));
        assert!((10..added).filter(|name| look.may_have(*name)).count() < 100);
    }
}

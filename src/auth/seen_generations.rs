//! Generations of tokens that were seen in use, until the store knows it.
//!
//! The first request with an access token of generation c confirms that its client received the response that carried
//! c. The rotation rules need this (see `tokens::family::rotation`), but no request waits for the store: it is recorded
//! here and written in batches. What cannot be written waits for the next batch: a lost entry lets a stolen parent get
//! its child after the grace.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::types::ids::TokenId;

/// Maximum number of families between two writes. Further ones are dropped, which is safe.
const MAX_FAMILIES: usize = 100_000;

#[derive(Default)]
pub struct SeenGenerations {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    waiting: HashMap<TokenId, u64>,
    /// On their way to the store. A refresh that reads the store meanwhile must not miss them: its parent would be
    /// accepted once more.
    writing: HashMap<TokenId, u64>,
}

impl SeenGenerations {
    pub fn record(&self, family: TokenId, generation: u64) {
        let waiting = &mut self.seen.lock().waiting;
        if waiting.len() < MAX_FAMILIES || waiting.contains_key(&family) {
            let newest = waiting.entry(family).or_insert(generation);
            *newest = generation.max(*newest);
        }
    }

    /// The newest generation seen of one family that the store may not know.
    pub fn newest(&self, family: TokenId) -> Option<u64> {
        let seen = self.seen.lock();
        seen.waiting.get(&family).max(seen.writing.get(&family)).copied()
    }

    /// Returns all that wait. To be written, and then [`SeenGenerations::end_write`].
    pub fn begin_write(&self) -> Vec<(TokenId, u64)> {
        let mut seen = self.seen.lock();
        seen.writing = std::mem::take(&mut seen.waiting);
        seen.writing.iter().map(|(family, generation)| (*family, *generation)).collect()
    }

    /// The store knows them.
    pub fn end_write(&self) {
        self.seen.lock().writing.clear();
    }

    /// The store may not know them: they wait for the next write.
    pub fn write_failed(&self) {
        let writing = std::mem::take(&mut self.seen.lock().writing);
        for (family, generation) in writing {
            self.record(family, generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(number: usize) -> TokenId {
        TokenId::from_bytes((number as u128).to_be_bytes())
    }

    #[test]
    fn the_newest_generation_of_a_family_is_known_until_it_is_written() {
        let seen = SeenGenerations::default();
        [2, 3, 1].into_iter().for_each(|generation| seen.record(family(1), generation));
        assert_eq!((seen.newest(family(1)), seen.newest(family(2))), (Some(3), None));
        assert_eq!(seen.begin_write(), [(family(1), 3)]);
        assert_eq!(seen.newest(family(1)), Some(3), "the store may not know it yet");
        seen.record(family(1), 4);
        assert_eq!(seen.newest(family(1)), Some(4));
        seen.end_write();
        assert_eq!((seen.newest(family(1)), seen.begin_write()), (Some(4), vec![(family(1), 4)]));
        seen.end_write();
        assert_eq!((seen.newest(family(1)), seen.begin_write()), (None, vec![]));
    }

    #[test]
    fn what_was_not_written_waits_for_the_next_write() {
        let seen = SeenGenerations::default();
        seen.record(family(1), 3);
        seen.record(family(2), 1);
        assert_eq!(seen.begin_write().len(), 2);
        seen.record(family(1), 4);
        seen.write_failed();
        assert_eq!((seen.newest(family(1)), seen.newest(family(2))), (Some(4), Some(1)));
        let mut again = seen.begin_write();
        again.sort_unstable();
        assert_eq!(again, [(family(1), 4), (family(2), 1)]);
    }

    #[test]
    fn a_full_record_still_updates_the_families_that_it_has() {
        let seen = SeenGenerations::default();
        (0..=MAX_FAMILIES).for_each(|number| seen.record(family(number), 1));
        seen.record(family(0), 2);
        assert_eq!((seen.newest(family(MAX_FAMILIES)), seen.newest(family(0))), (None, Some(2)));
        assert_eq!(seen.begin_write().len(), MAX_FAMILIES);
    }
}

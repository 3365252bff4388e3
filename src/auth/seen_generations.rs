//! Which generations were seen in use, until the store knows it.
//!
//! The first request with an access token of generation c confirms that its client received the response that carried
//! c. The rotation rules need this (see `tokens::family::rotation`), but no request waits for the store: it is recorded
//! here and written in batches. A lost entry only makes rotation more lenient.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::types::ids::TokenId;

/// Maximum number of families between two writes. Further ones are dropped, which is safe.
const MAX_FAMILIES: usize = 100_000;

#[derive(Default)]
pub struct SeenGenerations {
    seen: Mutex<HashMap<TokenId, u64>>,
}

impl SeenGenerations {
    pub fn record(&self, family: TokenId, generation: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MAX_FAMILIES || seen.contains_key(&family) {
            let newest = seen.entry(family).or_insert(generation);
            *newest = generation.max(*newest);
        }
    }

    /// Removes and returns the generation seen of one family.
    pub fn take(&self, family: TokenId) -> Option<u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&family)
    }

    /// Removes and returns all of them.
    pub fn drain(&self) -> Vec<(TokenId, u64)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(number: usize) -> TokenId {
        TokenId::from_bytes((number as u128).to_be_bytes())
    }

    #[test]
    fn the_newest_generation_of_a_family_is_kept_once() {
        let seen = SeenGenerations::default();
        [2, 3, 1].into_iter().for_each(|generation| seen.record(family(1), generation));
        seen.record(family(2), 7);
        assert_eq!((seen.take(family(1)), seen.take(family(1))), (Some(3), None));
        assert_eq!((seen.drain(), seen.drain()), (vec![(family(2), 7)], vec![]));
    }

    #[test]
    fn a_full_record_still_updates_the_families_that_it_has() {
        let seen = SeenGenerations::default();
        (0..=MAX_FAMILIES).for_each(|number| seen.record(family(number), 1));
        seen.record(family(0), 2);
        assert_eq!((seen.take(family(MAX_FAMILIES)), seen.take(family(0))), (None, Some(2)));
        assert_eq!(seen.drain().len(), MAX_FAMILIES - 1);
    }
}

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

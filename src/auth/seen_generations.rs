//! Which generations were seen in use, on their way to the store.
//!
//! The first request with an access token of generation c confirms that its client got the answer that carried c. The
//! rotation table needs to know (see `family::rotation`), but no request should wait for the store to write it: it is noted
//! here and written in batches. Losing a note only makes rotation more lenient.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::types::ids::TokenId;

/// Notes kept between two writes. Beyond it new ones are dropped, which is safe.
const MOST: usize = 100_000;

#[derive(Default)]
pub struct SeenGenerations {
    seen: Mutex<HashMap<TokenId, u64>>,
}

impl SeenGenerations {
    pub fn note(&self, family: TokenId, generation: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST || seen.contains_key(&family) {
            let newest = seen.entry(family).or_insert(generation);
            *newest = generation.max(*newest);
        }
    }

    /// Takes the note about one family, if there is one.
    pub fn take(&self, family: TokenId) -> Option<u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&family)
    }

    /// Takes all notes.
    pub fn drain(&self) -> Vec<(TokenId, u64)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

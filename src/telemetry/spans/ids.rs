//! Ids of traces and spans. They need to be unique and evenly spread, but not secret.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::secret;

/// xoroshiro128++ 1.0 by Blackman and Vigna. Only one worker uses it, so no read-modify-write is needed.
pub(super) struct RandomIds([AtomicU64; 2]);

impl RandomIds {
    pub(super) fn new() -> Self {
        Self::from_seed(secret::random(), secret::random())
    }

    fn from_seed(first: [u8; 8], second: [u8; 8]) -> Self {
        // A state of zeros would stay so.
        RandomIds([AtomicU64::new(u64::from_le_bytes(first) | 1), AtomicU64::new(u64::from_le_bytes(second))])
    }

    fn next(&self) -> u64 {
        let [first, second] = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        let number = first.wrapping_add(second).rotate_left(17).wrapping_add(first);
        let mixed = second ^ first;
        self.0[0].store(first.rotate_left(49) ^ mixed ^ (mixed << 21), Ordering::Relaxed);
        self.0[1].store(mixed.rotate_left(28), Ordering::Relaxed);
        number
    }

    pub(super) fn trace_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        let (high, low) = id.split_at_mut(8);
        high.copy_from_slice(&self.next().to_be_bytes());
        low.copy_from_slice(&self.span_id().to_be_bytes());
        id
    }

    /// Not zero, which is no valid id.
    pub(super) fn span_id(&self) -> u64 {
        self.next().max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        let ids = RandomIds::from_seed(1_u64.to_le_bytes(), 2_u64.to_le_bytes());
        // From the C code of the authors, with the state 1, 2.
        assert_eq!([ids.next(), ids.next(), ids.next()], [393_217, 669_327_710_093_319, 1_732_421_326_133_921_491]);
    }

    #[test]
    fn ids_do_not_repeat() {
        let workers = [(); 4].map(|()| RandomIds::new());
        let traces: HashSet<_> = workers.iter().flat_map(|ids| (0..10_000).map(|_| ids.trace_id())).collect();
        assert_eq!(traces.len(), 40_000);
    }
}

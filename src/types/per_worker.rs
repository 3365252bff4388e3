//! One value for all workers, with a reference count for each.
//!
//! A request takes and gives back a reference to the gateway, its route and its server. If all workers counted in the
//! same place, each count would move between their cores, at about 100 ns a move on a large machine.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Bytes that processors move between cores at once: a line of 64, often with its neighbour.
const CACHE_LINES: usize = 128;

/// A shared value as [`PerWorker`] needs it. A copy of it is another reference to the value.
#[repr(align(128))]
pub struct PaddedArc<T>(Arc<T>);

impl<T> PaddedArc<T> {
    pub fn new(value: T) -> Self {
        PaddedArc(Arc::new(value))
    }

    /// For other threads than the workers.
    pub fn shared(&self) -> Arc<T> {
        self.0.clone()
    }
}

impl<T> Clone for PaddedArc<T> {
    fn clone(&self) -> Self {
        PaddedArc(self.0.clone())
    }
}

impl<T> Deref for PaddedArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Reads are of the value that all share. `T` is aligned to 128 bytes, and so are the counts before it.
pub struct PerWorker<T> {
    value: T,
    /// Made by each worker at its first use. The last is for all other threads.
    copies: Box<[OnceLock<Arc<T>>]>,
}

impl<T> PerWorker<T> {
    pub fn new(value: T, workers: usize) -> Self {
        const { assert!(align_of::<T>() >= CACHE_LINES, "two workers would count in one cache line") };
        PerWorker { value, copies: (0..=workers).map(|_| OnceLock::new()).collect() }
    }

    /// The reference that this worker counts. `copy` is called at its first use. A number above those of the workers
    /// stands for other threads.
    pub fn of(&self, worker: usize, copy: impl FnOnce(&T) -> T) -> &Arc<T> {
        let own = &self.copies[worker.min(self.copies.len() - 1)];
        own.get_or_init(|| Arc::new(copy(&self.value)))
    }
}

impl<T> Deref for PerWorker<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_counts_its_own_references() {
        let shared = PerWorker::new(PaddedArc::new(7), 2);
        let of = |worker| shared.of(worker, PaddedArc::clone).clone();
        let [one, again, other, admin, explain] = [0, 0, 1, 2, usize::MAX].map(of);
        assert_eq!([&one, &other, &admin].map(|number| ***number), [7; 3]);
        // One of the copy, and those of the callers.
        assert_eq!([&one, &other, &admin].map(Arc::strong_count), [3, 2, 3]);
        assert!(Arc::ptr_eq(&one, &again) && Arc::ptr_eq(&admin, &explain) && !Arc::ptr_eq(&one, &other));
        assert_eq!(Arc::strong_count(&shared.0), 4, "the value itself is there once");
    }
}

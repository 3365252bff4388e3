//! One value for all workers, with a reference count for each.
//!
//! A request takes and gives back a reference to the gateway, its route and its server. If all workers counted in the
//! same place, each count would move between their cores, at about 100 ns a move on a large machine.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Reads are of the value that all share.
pub struct PerWorker<T> {
    value: T,
    /// Made by each worker at its first use, so that two of them share no cache line. The last is for all other threads.
    copies: Box<[OnceLock<Arc<T>>]>,
}

impl<T> PerWorker<T> {
    pub fn new(value: T, workers: usize) -> Self {
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
        let shared = PerWorker::new(Arc::new(7), 2);
        let of = |worker| shared.of(worker, Arc::clone).clone();
        let [one, again, other, admin, explain] = [0, 0, 1, 2, usize::MAX].map(of);
        assert_eq!([&one, &other, &admin].map(|number| ***number), [7; 3]);
        // One of the copy, and those of the callers.
        assert_eq!([&one, &other, &admin].map(Arc::strong_count), [3, 2, 3]);
        assert!(Arc::ptr_eq(&one, &again) && Arc::ptr_eq(&admin, &explain) && !Arc::ptr_eq(&one, &other));
        assert_eq!(Arc::strong_count(&shared), 4, "the value itself is there once");
    }
}

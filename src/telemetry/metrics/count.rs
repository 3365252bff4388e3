//! A counter without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that usually one thread increases. Every thread can read it.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub const fn new() -> Self {
        Count(AtomicU64::new(0))
    }

    pub fn add(&self, amount: u64) {
        // With one writer, no read-modify-write is needed, which costs ten times as much.
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// As [`Count::add`], for a counter that several threads increase. All of them must use this.
    pub fn add_shared(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn inc(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

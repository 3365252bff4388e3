//! Rows that wait for the sweep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::types::clock::UnixTime;

/// Rows that no longer matter, and that no sweep has deleted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    pub rows: u64,
    /// When the oldest of them ended.
    pub oldest: Option<UnixTime>,
}

impl Expired {
    /// How long the oldest row has waited.
    pub fn age(&self, now: UnixTime) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

/// What waited when the sweep counted last, for metrics. Nothing at a gateway that does not sweep.
#[derive(Debug, Default)]
pub struct Backlog {
    rows: AtomicU64,
    /// In milliseconds since 1970; 0: no row waits.
    oldest: AtomicU64,
    swept: AtomicU64,
}

impl Backlog {
    /// The sweep has deleted these rows.
    pub(super) fn count_swept(&self, rows: usize) {
        self.swept.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Rows that the sweeps of this gateway have deleted.
    pub fn swept(&self) -> u64 {
        self.swept.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, expired: Expired) {
        self.rows.store(expired.rows, Ordering::Relaxed);
        self.oldest.store(expired.oldest.map_or(0, UnixTime::as_millis), Ordering::Relaxed);
    }

    pub fn get(&self) -> Expired {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let oldest = (oldest > 0).then(|| UnixTime::from_millis(oldest));
        Expired { rows: self.rows.load(Ordering::Relaxed), oldest }
    }
}

//! Which API keys are looked up right now, so that requests with the same key wait for one look-up.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::quality::RandomState;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore, SemaphorePermit};

use crate::telemetry::report_interval::ReportInterval;

/// Keys that are read from the store at the same time.
const MAX_READS: usize = 64;

/// Those of open streams among them, so that requests do not wait for many streams.
const MAX_STREAM_READS: usize = 8;

/// By a hash of the whole key: with a wrong secret it is another key.
pub(super) struct KeyLookups {
    waiting: Mutex<HashMap<u64, Waiting, foldhash::fast::RandomState>>,
    hasher: RandomState,
    reads: Semaphore,
    stream_reads: Semaphore,
}

/// Who needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Request,
    Stream,
}

/// The requests that carry one key.
#[derive(Default)]
struct Waiting {
    turn: Arc<Turn<()>>,
    requests: usize,
}

/// One request that needs a key. Ends when it is dropped.
pub(super) struct Lookup<'l> {
    lookups: &'l KeyLookups,
    key: u64,
    turn: Arc<Turn<()>>,
    /// No other request looks this key up.
    pub(super) is_first: bool,
}

impl Default for KeyLookups {
    fn default() -> Self {
        KeyLookups {
            waiting: Mutex::default(),
            hasher: RandomState::default(),
            reads: Semaphore::new(MAX_READS),
            stream_reads: Semaphore::new(MAX_STREAM_READS),
        }
    }
}

impl KeyLookups {
    pub(super) fn begin(&self, key: &str) -> Lookup<'_> {
        let key = self.hasher.hash_one(key);
        let mut waiting = self.lock();
        let entry = waiting.entry(key).or_default();
        entry.requests += 1;
        Lookup { lookups: self, key, turn: entry.turn.clone(), is_first: entry.requests == 1 }
    }

    /// Waits until a key may be read. Never closed, so that there always is a permit in the end.
    pub(super) async fn read_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.reads.acquire().await.ok()
    }

    /// Waits until a key of open streams may be read. It then takes part in [`KeyLookups::read_permit`], with a time
    /// limit of its own.
    pub(super) async fn turn_of(&self, reader: Reader) -> Option<SemaphorePermit<'_>> {
        match reader {
            Reader::Request => None,
            Reader::Stream => self.stream_reads.acquire().await.ok(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting, foldhash::fast::RandomState>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookup<'_> {
    /// Waits until no other request looks this key up.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        let mut waiting = self.lookups.lock();
        if let Some(entry) = waiting.get_mut(&self.key) {
            entry.requests -= 1;
            if entry.requests == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

/// Reads of keys that have ended.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) ok: AtomicU64,
    pub(super) failed: AtomicU64,
    reports: ReportInterval,
}

impl Reads {
    pub(super) fn fail(&self, error: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(others) = self.reports.count(Instant::now()) {
            tracing::error!(error, other_failures = others, "cannot read API keys from the store");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_request_with_a_key_is_the_first() {
        let lookups = KeyLookups::default();
        let (first, second, other) = (lookups.begin("a"), lookups.begin("a"), lookups.begin("b"));
        assert_eq!([first.is_first, second.is_first, other.is_first], [true, false, true]);
        drop(first);
        assert!(!lookups.begin("a").is_first, "the second still waits");
        drop(second);
        assert!(lookups.begin("a").is_first);
        drop(other);
        assert!(lookups.lock().is_empty());
    }

    #[tokio::test]
    async fn requests_with_one_key_have_their_turns_one_after_another() {
        let lookups = KeyLookups::default();
        let (first, second, other) = (lookups.begin("a"), lookups.begin("a"), lookups.begin("b"));
        let turn = first.turn().await;
        drop(other.turn().await);
        assert!(second.turn.try_lock().is_err());
        drop(turn);
        drop(second.turn().await);
    }
}

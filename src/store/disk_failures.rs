//! Remembers that the store could not write a change because its disk is full or broken.
//!
//! The small change of a readiness probe can fit on a full disk where a login does not. The outcome of the other calls
//! therefore counts, too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::error::StoreError;

/// How long a failure counts. Long enough that readiness does not change with each call, short enough that a gateway is
/// back soon after there is space.
const HOLD: Duration = Duration::from_secs(3);

/// The newest failure, until a probe has found that it is over.
#[derive(Default)]
pub(super) struct DiskFailures(Mutex<Option<Failure>>);

struct Failure {
    at: Instant,
    error: StoreError,
}

impl DiskFailures {
    /// Remembers the error of a call, if the disk is its cause.
    pub(super) fn note(&self, error: &StoreError) {
        if error.is_of_disk {
            *self.lock() = Some(Failure { at: Instant::now(), error: error.clone() });
        }
    }

    /// The error of the newest failure, if it still counts.
    pub(super) fn recent(&self) -> Option<StoreError> {
        let failure = self.lock();
        failure.as_ref().filter(|failure| failure.at.elapsed() < HOLD).map(|failure| failure.error.clone())
    }

    /// Returns true from a failure to the next [`DiskFailures::end`].
    pub(super) fn has_failed(&self) -> bool {
        self.lock().is_some()
    }

    /// A probe that began at `began` could write. A failure since then stays.
    pub(super) fn end(&self, began: Instant) {
        self.lock().take_if(|failure| failure.at < began);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_the_disk_counts_and_only_for_a_while() {
        let failures = DiskFailures::default();
        failures.note(&StoreError::new("a row is damaged"));
        assert!(failures.recent().is_none() && !failures.has_failed());
        failures.note(&StoreError::of_disk("full"));
        assert_eq!(failures.recent().map(|error| error.message).as_deref(), Some("full"));
        if let Some(failure) = failures.lock().as_mut() {
            failure.at -= HOLD;
        }
        assert!(failures.recent().is_none() && failures.has_failed());
    }

    #[test]
    fn a_probe_ends_only_failures_from_before_it() {
        let failures = DiskFailures::default();
        let before = Instant::now();
        failures.note(&StoreError::of_disk("full"));
        failures.end(before);
        assert!(failures.has_failed());
        failures.end(Instant::now());
        assert!(!failures.has_failed());
    }
}

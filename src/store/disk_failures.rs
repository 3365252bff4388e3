//! Remembers that the store could not write a change because its disk is full or broken.
//!
//! The small change of a readiness probe can fit on a full disk where a login does not. The outcome of the other calls
//! therefore counts, too.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::store::error::{FailureKind, StoreError};

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
    /// Remembers the error of a call, if the disk is its cause. The journal has the first one.
    pub(super) fn note(&self, error: &StoreError) {
        if error.kind != FailureKind::Disk {
            return;
        }
        let failure = Failure { at: Instant::now(), error: error.clone() };
        if self.0.lock().replace(failure).is_none() {
            tracing::error!(%error, "logins, refreshes and revocations get 503: the store cannot write");
        }
    }

    /// The error of the newest failure, if it still counts.
    pub(super) fn recent(&self) -> Option<StoreError> {
        let failure = self.0.lock();
        failure.as_ref().filter(|failure| failure.at.elapsed() < HOLD).map(|failure| failure.error.clone())
    }

    /// Returns true from a failure to the next [`DiskFailures::end`].
    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().is_some()
    }

    /// A probe that began at `began` could write. A failure since then stays.
    pub(super) fn end(&self, began: Instant) {
        if self.0.lock().take_if(|failure| failure.at < began).is_some() {
            tracing::info!("the store can write again");
        }
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
        failures.note(&StoreError::new("full").of_kind(FailureKind::Disk));
        assert_eq!(failures.recent().map(|error| error.message).as_deref(), Some("full"));
        if let Some(failure) = failures.0.lock().as_mut() {
            failure.at -= HOLD;
        }
        assert!(failures.recent().is_none() && failures.has_failed());
    }

    #[test]
    fn a_probe_ends_only_failures_from_before_it() {
        let failures = DiskFailures::default();
        let before = Instant::now();
        failures.note(&StoreError::new("full").of_kind(FailureKind::Disk));
        failures.end(before);
        assert!(failures.has_failed());
        failures.end(Instant::now());
        assert!(!failures.has_failed());
    }
}

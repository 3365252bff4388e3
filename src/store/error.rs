//! Why a call to the store failed.

use std::fmt;
use std::time::Duration;

/// A failed call. The text is for the operator and the log: what failed and what to do.
///
/// Cloneable text without a source, because a failed commit fails every call of its batch with the same error.
#[derive(Clone, Debug)]
pub struct StoreError {
    pub message: String,
    /// The disk of the store is full or broken, so that other changes fail, too.
    pub(super) is_of_disk: bool,
}

impl StoreError {
    pub fn new(message: impl Into<String>) -> Self {
        StoreError { message: message.into(), is_of_disk: false }
    }

    pub(super) fn of_disk(message: impl Into<String>) -> Self {
        StoreError { message: message.into(), is_of_disk: true }
    }

    /// The caller has waited for `limit`, which is `timeouts.store`.
    pub fn timeout(limit: Duration) -> Self {
        StoreError::new(format!("the store did not respond within {limit:?}: check the disk of the database"))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

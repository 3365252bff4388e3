//! Refreshed logins that are only in the memory, because the store cannot write them now.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::StoreError;
use crate::types::ids::TokenId;
use crate::types::reject::with_causes;

/// At this number, no further refresh begins: its tokens would take more memory.
const MAX_UNSAVED: usize = 1024;

/// How many there are.
#[derive(Default)]
pub(super) struct Unsaved(AtomicUsize);

/// One of them, until it is dropped.
pub(super) struct Held<'u>(&'u Unsaved);

impl Unsaved {
    pub(super) fn is_full(&self) -> bool {
        self.count() >= MAX_UNSAVED
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Logs the first one of an outage.
    pub(super) fn hold(&self, session: TokenId, error: &StoreError) -> Held<'_> {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            let error = with_causes(error);
            tracing::error!(%session, error, "cannot save a refreshed login: keeping it, and others, until it is saved");
        }
        Held(self)
    }
}

impl Held<'_> {
    /// Logs the last one.
    pub(super) fn saved(self) {
        if self.0.count() == 1 {
            tracing::info!("all refreshed logins are saved");
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_is_held() {
        let unsaved = Unsaved::default();
        let error = StoreError::new("full");
        let mut held: Vec<_> = (1..MAX_UNSAVED).map(|_| unsaved.hold(TokenId::random(), &error)).collect();
        assert!(!unsaved.is_full());
        held.push(unsaved.hold(TokenId::random(), &error));
        assert!(unsaved.is_full());
        held.pop().expect("one").saved();
        assert!(!unsaved.is_full());
        held.clear();
        assert_eq!(unsaved.count(), 0);
    }
}

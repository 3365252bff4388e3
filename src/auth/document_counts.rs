//! The documents of clients that were looked for, for the metrics.

use std::time::Duration;

use crate::telemetry::metrics::{Count, Histogram, LabelledTotals, LabelledValue, by_outcome, totals_by_outcome};

/// Shared by all workers.
pub struct DocumentCounts {
    /// In the order of [`DocumentOutcome`].
    outcomes: [Count; NAMES.len()],
    /// Of fetches that had a response in time, and of the others.
    durations: [Histogram; DURATIONS.len()],
}

/// What came of the document of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentOutcome {
    /// The gateway has fetched it before.
    Kept,
    Fetched,
    /// It cannot be fetched now, and an older one serves.
    Stale,
    /// Its host is not allowed, or its URL is none of a document.
    Denied,
    /// The response is no document of this client.
    Invalid,
    /// There was no response.
    Unreachable,
    /// Too many documents were fetched, and it was not asked for.
    Busy,
}

const NAMES: [&str; 7] = ["kept", "fetched", "stale", "denied", "invalid", "unreachable", "busy"];
const DURATIONS: [&str; 2] = ["answered", "unreachable"];

impl DocumentCounts {
    pub(super) fn count(&self, outcome: DocumentOutcome) {
        if let Some(count) = self.outcomes.get(outcome as usize) {
            count.add_shared(1);
        }
    }

    pub(super) fn took(&self, is_answered: bool, duration: Duration) {
        let [answered, unreachable] = &self.durations;
        let histogram = if is_answered { answered } else { unreachable };
        histogram.observe_shared(duration);
    }

    pub fn labelled(&self) -> Vec<LabelledValue> {
        by_outcome(&NAMES, &self.outcomes)
    }

    pub fn durations(&self) -> Vec<LabelledTotals> {
        totals_by_outcome(&DURATIONS, &self.durations)
    }
}

impl Default for DocumentCounts {
    fn default() -> Self {
        DocumentCounts {
            outcomes: [const { Count::new() }; NAMES.len()],
            durations: [const { Histogram::of_requests() }; DURATIONS.len()],
        }
    }
}

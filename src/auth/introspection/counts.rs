//! The questions to introspection endpoints, for the metrics.

use std::time::Duration;

use crate::telemetry::metrics::{Count, Histogram, LabelledTotals, LabelledValue, by_outcome, totals_by_outcome};

/// Shared by all workers. Outlives a reload.
pub struct IntrospectionCounts {
    /// In the order of [`Outcome`].
    outcomes: [Count; 5],
    /// In the same order, as far as it was asked.
    durations: [Histogram; 3],
}

/// What came of a question.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Active,
    Inactive,
    /// There was no usable answer.
    Failed,
    /// Too many questions were in flight, and it was not asked.
    Busy,
    /// The endpoint did not respond to the last ones, and it was not asked.
    Skipped,
}

const NAMES: [&str; 5] = ["active", "inactive", "failed", "busy", "skipped"];

impl IntrospectionCounts {
    pub(super) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add_shared(1);
    }

    pub(super) fn took(&self, outcome: Outcome, duration: Duration) {
        self.count(outcome);
        if let Some(histogram) = self.durations.get(outcome as usize) {
            histogram.observe_shared(duration);
        }
    }

    pub fn labelled(&self) -> Vec<LabelledValue> {
        by_outcome(&NAMES, &self.outcomes)
    }

    pub fn durations(&self) -> Vec<LabelledTotals> {
        totals_by_outcome(&NAMES, &self.durations)
    }
}

impl Default for IntrospectionCounts {
    fn default() -> Self {
        IntrospectionCounts {
            outcomes: [const { Count::new() }; 5],
            durations: [const { Histogram::of_requests() }; 3],
        }
    }
}

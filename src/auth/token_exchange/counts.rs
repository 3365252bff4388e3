//! The exchanges at other servers, for the metrics.

use super::failure::Failure;
use crate::telemetry::metrics::{Count, LabelledValue, by_outcome};

/// Shared by all workers. Outlives a reload.
pub struct ExchangeCounts {
    /// In the order of [`NAMES`].
    outcomes: [Count; 4],
}

const NAMES: [&str; 4] = ["issued", "failed", "unavailable", "skipped"];

impl ExchangeCounts {
    pub(super) fn count<T>(&self, outcome: &Result<T, Failure>) {
        let index = match outcome {
            Ok(_) => 0,
            Err(Failure::Failed(_)) => 1,
            Err(Failure::Unavailable(_)) => 2,
            Err(Failure::Skipped) => 3,
        };
        self.outcomes[index].add_shared(1);
    }

    pub fn labelled(&self) -> Vec<LabelledValue> {
        by_outcome(&NAMES, &self.outcomes)
    }
}

impl Default for ExchangeCounts {
    fn default() -> Self {
        ExchangeCounts { outcomes: [const { Count::new() }; 4] }
    }
}

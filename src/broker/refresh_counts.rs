//! Counts of refreshes by their outcome, for metrics.

use crate::telemetry::metrics::{self, Count, LabelledValue};
use crate::tokens::family::rotation::Rotation;

/// In the order of [`RefreshCounts`].
const NAMES: [&str; 7] = ["rotated", "replayed", "recovered", "repeated", "superseded", "reused", "rejected"];

#[derive(Default)]
pub struct RefreshCounts([Count; NAMES.len()]);

impl RefreshCounts {
    pub(super) fn count(&self, rotation: &Rotation) {
        let place = match rotation {
            Rotation::Rotated(_) => 0,
            Rotation::Replayed(_) => 1,
            Rotation::Recovered(_) => 2,
            Rotation::Repeated(_) => 3,
            Rotation::Superseded(_) => 4,
            Rotation::Reused(_) => 5,
            Rotation::Rejected(_) => 6,
        };
        if let Some(count) = self.0.get(place) {
            count.add_shared(1);
        }
    }

    pub fn by_outcome(&self) -> Vec<LabelledValue> {
        metrics::by_outcome(&NAMES, &self.0)
    }
}

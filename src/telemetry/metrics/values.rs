//! Metrics that other modules register: a value, or values with labels.

use prometheus_client::metrics::MetricType;

use super::count::Count;
use super::histogram::{Histogram, Totals};

/// Reads a value at a scrape.
type ReadValue = Box<dyn Fn() -> f64 + Send + Sync>;

/// A value with its labels.
pub type LabelledValue = (Vec<(&'static str, String)>, f64);

/// A histogram with its labels.
pub type LabelledTotals = (Vec<(&'static str, String)>, Totals);

/// Reads counts with the label `outcome`. `names`: in the order of the counts.
pub fn by_outcome(names: &[&str], counts: &[Count]) -> Vec<LabelledValue> {
    names.iter().zip(counts).map(|(name, count)| (outcome(name), count.get() as f64)).collect()
}

/// As [`by_outcome`], of histograms.
pub fn totals_by_outcome(names: &[&str], histograms: &[Histogram]) -> Vec<LabelledTotals> {
    names.iter().zip(histograms).map(|(name, histogram)| (outcome(name), Totals::of([histogram]))).collect()
}

fn outcome(name: &str) -> Vec<(&'static str, String)> {
    vec![("outcome", name.to_owned())]
}

/// A metric without labels.
pub(super) struct Single {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) read: ReadValue,
}

/// A metric with labels.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) read: Box<dyn Fn() -> Vec<LabelledValue> + Send + Sync>,
}

/// A histogram with labels.
pub(super) struct HistogramFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Box<dyn Fn() -> Vec<LabelledTotals> + Send + Sync>,
}

//! Metrics: what the gateway counts, and its text for Prometheus.
//!
//! Each worker has counters of its own, and only that worker writes them. So counting is an ordinary addition, and no
//! two cores share a cache line. A scrape adds the counters up. Labels are closed sets: no client can create one.

mod classic;
mod count;
mod durations;
mod exposition;
mod histogram;
mod limits;
mod process;
mod reading;
mod registry;
mod routes;
mod values;
mod worker;

pub use count::Count;
pub use durations::quantile;
pub use histogram::{Histogram, Totals};
pub use reading::{ByLimit, ByReason, NO_HITS, Reading, limit_names};
pub use registry::Metrics;
pub use routes::{RequestsByRoute, RouteRequests};
pub use values::{LabelledTotals, LabelledValue, by_outcome, totals_by_outcome};
pub use worker::WorkerMetrics;

//! A store that fails or does not respond, as the broker reports it.

use std::time::Instant;

use crate::store::StoreError;
use crate::telemetry::report_interval::ReportInterval;
use crate::types::reject::{Reason, Reject};

/// A client can make calls that fail while the store is away, with invented tokens.
static REPORTS: ReportInterval = ReportInterval::new();

impl From<StoreError> for Reject {
    fn from(error: StoreError) -> Reject {
        if let Some(others) = REPORTS.count(Instant::now()) {
            tracing::error!(%error, other_failures = others, "the store failed");
        }
        Reject::new(Reason::StoreUnavailable, error.message)
    }
}

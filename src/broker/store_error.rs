//! A store that fails or does not respond, as the broker reports it.

use std::time::Duration;

use crate::store::StoreError;
use crate::types::reject::{Reason, Reject};

pub(super) fn timeout_error(limit: Duration) -> StoreError {
    StoreError::new(format!("the store did not respond within {limit:?}: check the disk of the database"))
}

impl From<StoreError> for Reject {
    fn from(error: StoreError) -> Reject {
        tracing::error!(%error, "the store failed");
        Reject::new(Reason::StoreUnavailable, error.message)
    }
}

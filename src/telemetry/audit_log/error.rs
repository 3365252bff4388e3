//! Errors of the delivery of audit events.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write {path}")]
    File { path: PathBuf, source: io::Error },
    /// The message of the cause names the URL.
    #[error(transparent)]
    Webhook(Box<dyn Error + Send + Sync>),
}

impl DeliveryError {
    pub(super) fn webhook(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        DeliveryError::Webhook(source.into())
    }
}

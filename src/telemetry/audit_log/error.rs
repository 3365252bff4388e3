//! Errors of the delivery of audit events.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::store::StoreError;

#[derive(Debug)]
pub enum DeliveryError {
    Store(StoreError),
    File {
        path: PathBuf,
        source: io::Error,
    },
    /// The message of the cause names the URL.
    Webhook(Box<dyn Error + Send + Sync>),
}

impl DeliveryError {
    pub(super) fn webhook(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        DeliveryError::Webhook(source.into())
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryError::Store(error) => error.fmt(f),
            DeliveryError::File { path, .. } => write!(f, "cannot write {}", path.display()),
            DeliveryError::Webhook(error) => error.fmt(f),
        }
    }
}

impl Error for DeliveryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DeliveryError::Store(error) => error.source(),
            DeliveryError::File { source, .. } => Some(source),
            DeliveryError::Webhook(error) => error.source(),
        }
    }
}

impl From<StoreError> for DeliveryError {
    fn from(error: StoreError) -> Self {
        DeliveryError::Store(error)
    }
}

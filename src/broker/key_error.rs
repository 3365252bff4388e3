//! Errors of loading and changing the gateway's own signing keys.

use std::error::Error;

use tokio::task::JoinError;

use crate::auth::keyring::OwnKeysError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The store failed, or did not respond in time.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key could not be created or sealed. The message of the cause names it.
    #[error(transparent)]
    Key(Box<dyn Error + Send + Sync>),
    /// The stored keys cannot be put in force.
    #[error(transparent)]
    Unusable(#[from] OwnKeysError),
    /// The task that creates or changes a key was ended.
    #[error(transparent)]
    Task(#[from] JoinError),
    /// An operator has revoked the key in `tokens.signing_key_file`.
    #[error(
        "the key {kid} in tokens.signing_key_file was revoked: its tokens are rejected; put another key into the file"
    )]
    FileKeyRevoked { kid: String },
}

impl KeysError {
    pub(super) fn key(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        KeysError::Key(source.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use crate::types::reject::with_causes;

    /// Its own text, and a cause.
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] fmt::Error);

    #[test]
    fn an_error_names_its_causes_once() {
        let outer = with_causes(&Outer(fmt::Error));
        assert!(outer.starts_with("outer") && outer.len() > "outer".len(), "{outer}");
        assert_eq!(with_causes(&KeysError::key(Outer(fmt::Error))), outer);
        assert_eq!(with_causes(&KeysError::from(OwnKeysError::Key(Outer(fmt::Error).into()))), outer);
    }
}

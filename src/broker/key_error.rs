//! Errors of loading and changing the gateway's own signing keys.

use std::error::Error;
use std::fmt;

use tokio::task::JoinError;

use crate::auth::keyring::OwnKeysError;
use crate::store::StoreError;

#[derive(Debug)]
pub enum KeysError {
    /// The store failed, or did not respond in time.
    Store(StoreError),
    /// A key could not be created or sealed. The message of the cause names it.
    Key(Box<dyn Error + Send + Sync>),
    /// The stored keys cannot be put in force.
    Unusable(OwnKeysError),
    /// The task that creates or changes a key was ended.
    Task(JoinError),
    /// An operator has revoked the key in `tokens.signing_key_file`.
    FileKeyRevoked { kid: String },
}

impl KeysError {
    pub(super) fn key(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        KeysError::Key(source.into())
    }
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeysError::Store(error) => error.fmt(f),
            KeysError::Key(error) => error.fmt(f),
            KeysError::Unusable(error) => error.fmt(f),
            KeysError::Task(error) => error.fmt(f),
            KeysError::FileKeyRevoked { kid } => write!(
                f,
                "the key {kid} in tokens.signing_key_file was revoked: its tokens are rejected; put another key into \
                 the file"
            ),
        }
    }
}

impl Error for KeysError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            KeysError::Store(error) => error.source(),
            KeysError::Key(error) => error.source(),
            KeysError::Unusable(error) => error.source(),
            KeysError::Task(error) => error.source(),
            KeysError::FileKeyRevoked { .. } => None,
        }
    }
}

impl From<StoreError> for KeysError {
    fn from(error: StoreError) -> Self {
        KeysError::Store(error)
    }
}

impl From<OwnKeysError> for KeysError {
    fn from(error: OwnKeysError) -> Self {
        KeysError::Unusable(error)
    }
}

impl From<JoinError> for KeysError {
    fn from(error: JoinError) -> Self {
        KeysError::Task(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::reject::with_causes;

    /// Its own text, and a cause.
    #[derive(Debug)]
    struct Outer(fmt::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_names_its_causes_once() {
        let outer = with_causes(&Outer(fmt::Error));
        assert!(outer.starts_with("outer") && outer.len() > "outer".len(), "{outer}");
        assert_eq!(with_causes(&KeysError::key(Outer(fmt::Error))), outer);
        assert_eq!(with_causes(&KeysError::from(OwnKeysError::Key(Outer(fmt::Error).into()))), outer);
    }
}

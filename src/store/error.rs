//! Errors of calls to the store.

use std::time::Duration;

/// A failed call. The text is for the operator and the log: what failed and what to do.
///
/// Cloneable text without a source, because a failed commit fails every call of its batch with the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    pub message: String,
    pub(super) kind: FailureKind,
}

/// What kind of failure it is. Its text names no server, user, file or statement: a probe without a token may show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureKind {
    Unreachable,
    Silent,
    Login,
    Starting,
    ReadOnly,
    NoConnection,
    /// The disk of the store is full or broken, so that other changes fail, too.
    Disk,
    /// By this gateway, for good.
    Closed,
    #[default]
    Other,
}

impl FailureKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureKind::Unreachable => "the server cannot be reached",
            FailureKind::Silent => "the server does not respond in time",
            FailureKind::Login => "the server does not let the gateway in",
            FailureKind::Starting => "the server is starting or shutting down",
            FailureKind::ReadOnly => "the server is read-only",
            FailureKind::NoConnection => "the server has no free connection",
            FailureKind::Disk => "the disk of the database is full or broken",
            FailureKind::Closed => "the gateway has closed it",
            FailureKind::Other => "the journal has the error",
        }
    }
}

impl StoreError {
    pub fn new(message: impl Into<String>) -> Self {
        StoreError { message: message.into(), kind: FailureKind::Other }
    }

    pub(super) fn closed() -> Self {
        StoreError::new("the store has been closed").of_kind(FailureKind::Closed)
    }

    /// Returns true if no later call can succeed.
    pub fn is_closed(&self) -> bool {
        self.kind == FailureKind::Closed
    }

    pub(super) fn of_kind(self, kind: FailureKind) -> Self {
        StoreError { kind, ..self }
    }

    /// The presented token looks used, and is perhaps only late.
    pub(super) fn paused() -> Self {
        StoreError::new(
            "this gateway was paused, or the clock of its database was set forward: a refresh token that looks used \
             may have waited meanwhile, so that it ends no session. This takes some seconds; the client may repeat it",
        )
    }

    /// The caller has waited for `limit`, which is `timeouts.store`.
    pub fn timeout(limit: Duration) -> Self {
        StoreError::new(format!(
            "the store did not respond within {limit:?}: check the server or the disk of the database"
        ))
        .of_kind(FailureKind::Silent)
    }
}

//! Reasons why a name has no new certificate.

use instant_acme::Error;

use crate::protocols::http::client::ClientError;
use crate::protocols::tls::{IssuedError, TlsError};
use crate::store::StoreError;
use crate::types::reject::with_causes;

/// Maximum characters of an error that is kept: the authority writes parts of it.
const MAX_TEXT: usize = 400;

/// The type of an error of the authority (RFC 8555 section 6.7).
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const UNAUTHORIZED: &str = "urn:ietf:params:acme:error:unauthorized";

/// What a failure means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The authority did not respond.
    Absent,
    Other,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Another gateway works on the name.
    #[error("another gateway works on this name")]
    Overtaken,
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The gateway cannot seal what it would store.
    #[error("there is no root secret")]
    NoRootSecret,
    #[error("cannot make a key")]
    Key(#[source] TlsError),
    /// The authority did not respond.
    #[error("the authority does not respond")]
    Absent(#[source] ClientError),
    #[error("the authority")]
    Authority(#[source] Error),
    /// The authority has rejected the name, and says why.
    #[error("the authority cannot validate the name: {0}")]
    Rejected(String),
    #[error("{0}")]
    WrongAnswer(&'static str),
    #[error("the authority has sent a wrong certificate")]
    Certificate(#[from] IssuedError),
}

impl Failure {
    /// `None`: it is no failure of the order.
    pub(super) fn kind(&self) -> Option<FailureKind> {
        match self {
            Failure::Overtaken | Failure::Store(_) => None,
            Failure::Absent(_) => Some(FailureKind::Absent),
            _ => Some(FailureKind::Other),
        }
    }

    /// Returns true if the order can go on later.
    pub(super) fn keeps_order(&self) -> bool {
        matches!(self, Failure::Absent(_) | Failure::Authority(Error::Timeout(_))) || self.is_bad_nonce()
    }

    /// Returns true if the authority did not look at the request, because it does not accept its nonce (RFC 8555
    /// section 6.5).
    pub(super) fn is_bad_nonce(&self) -> bool {
        self.is_problem(BAD_NONCE)
    }

    /// Returns true if the account may have been deactivated (RFC 8555 section 7.3.6). An authority also rejects single
    /// requests in this way.
    pub(super) fn may_be_of_account(&self) -> bool {
        self.is_problem(UNAUTHORIZED)
    }

    fn is_problem(&self, kind: &str) -> bool {
        matches!(self, Failure::Authority(Error::Api(problem)) if problem.r#type.as_deref() == Some(kind))
    }

    /// For operators: one line.
    pub(super) fn text(&self) -> String {
        let text = with_causes(self);
        text.chars().take(MAX_TEXT).map(|found| if found.is_control() { ' ' } else { found }).collect()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Other(error) => match error.downcast::<ClientError>() {
                Ok(error) => Failure::Absent(*error),
                Err(error) => Failure::Authority(Error::Other(error)),
            },
            error => Failure::Authority(error),
        }
    }
}

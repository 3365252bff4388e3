//! Errors of requests to an upstream, and of its creation.

use crate::protocols::tls::TlsError;
use crate::types::reject::{Reason, Reject, with_causes};

/// Why an upstream gave no response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub enum Failure {
    Connect(String),
    ConnectTimeout(String),
    /// The maximum of requests was in flight, and none of them ended in time.
    Busy(String),
    /// The server closed or reset the connection, or did not speak HTTP.
    Broken(String),
    /// The server ended the connection in good order, and has certainly not processed the request.
    Closing(String),
}

impl Failure {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Failure::Connect(_) => Reason::UpstreamConnect,
            Failure::ConnectTimeout(_) => Reason::UpstreamConnectTimeout,
            Failure::Busy(_) => Reason::UpstreamBusy,
            Failure::Broken(_) | Failure::Closing(_) => Reason::UpstreamBroken,
        }
    }

    /// Returns true if it shows that something is wrong with the server. A healthy one can have many requests, and ends
    /// connections: one GOAWAY concerns many requests at once.
    pub(super) fn is_of_server(&self) -> bool {
        !matches!(self, Failure::Busy(_) | Failure::Closing(_))
    }

    pub(super) fn broken(error: hyper::Error) -> Self {
        Failure::Broken(with_causes(&error))
    }
}

impl From<Failure> for Reject {
    fn from(failure: Failure) -> Reject {
        Reject::new(failure.reason(), failure.to_string())
    }
}

/// Why an upstream cannot be created from its settings.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("servers is empty: add at least one URL")]
    NoServers,
    /// This host cannot be sent in a `Host` header field.
    #[error("servers: {0:?} is not a valid host")]
    InvalidHost(String),
    /// No certificate can be checked against this name.
    #[error("{0:?} is not a name or address that a certificate can have: set tls_server_name")]
    InvalidTlsName(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

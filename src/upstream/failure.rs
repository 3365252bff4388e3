//! Errors of requests to an upstream, and of its creation.

use std::error::Error;
use std::fmt;

use crate::protocols::tls::TlsError;
use crate::types::reject::{Reason, Reject, with_causes};

/// Why an upstream gave no response.
#[derive(Clone, Debug)]
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(text) | Failure::ConnectTimeout(text) => f.write_str(text),
            Failure::Busy(text) | Failure::Broken(text) | Failure::Closing(text) => f.write_str(text),
        }
    }
}

impl Error for Failure {}

impl From<Failure> for Reject {
    fn from(failure: Failure) -> Reject {
        Reject::new(failure.reason(), failure.to_string())
    }
}

/// Why an upstream cannot be created from its settings.
#[derive(Debug)]
pub enum UpstreamError {
    NoServers,
    /// This host cannot be sent in a `Host` header field.
    InvalidHost(String),
    /// No certificate can be checked against this name.
    InvalidTlsName(String),
    Tls(TlsError),
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamError::NoServers => f.write_str("servers is empty: add at least one URL"),
            UpstreamError::InvalidHost(host) => write!(f, "servers: {host:?} is not a valid host"),
            UpstreamError::InvalidTlsName(name) => {
                write!(f, "{name:?} is not a name or address that a certificate can have: set tls_server_name")
            }
            UpstreamError::Tls(error) => error.fmt(f),
        }
    }
}

impl Error for UpstreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            UpstreamError::Tls(error) => error.source(),
            _ => None,
        }
    }
}

impl From<TlsError> for UpstreamError {
    fn from(error: TlsError) -> Self {
        UpstreamError::Tls(error)
    }
}

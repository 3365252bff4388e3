//! Errors of calls to another server.

use std::error::Error;
use std::fmt;

use http::HeaderValue;

use crate::protocols::http::client::ClientError;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::sign::SigningError;

#[derive(Debug)]
pub enum OAuthClientError {
    /// The client secret is not UTF-8.
    UnusableSecret,
    /// A token with characters that no header can have.
    UnusableToken,
    Assertion(SigningError),
    NoResponse {
        url: SecureUrl,
        source: ClientError,
    },
    ContentEncoding {
        url: SecureUrl,
        coding: HeaderValue,
    },
}

impl OAuthClientError {
    /// Returns true if the endpoint did not respond in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, OAuthClientError::NoResponse { source: ClientError::Timeout(_), .. })
    }
}

impl fmt::Display for OAuthClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OAuthClientError::UnusableSecret => f.write_str("the client secret is not UTF-8"),
            OAuthClientError::UnusableToken => f.write_str("the token has characters that no header can have"),
            OAuthClientError::Assertion(_) => f.write_str("cannot sign the client assertion"),
            OAuthClientError::NoResponse { url, .. } => write!(f, "no response from {url}"),
            OAuthClientError::ContentEncoding { url, coding } => {
                write!(f, "{url}: the response has Content-Encoding {coding:?}")
            }
        }
    }
}

impl Error for OAuthClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OAuthClientError::Assertion(error) => Some(error),
            OAuthClientError::NoResponse { source, .. } => Some(source),
            OAuthClientError::UnusableSecret
            | OAuthClientError::UnusableToken
            | OAuthClientError::ContentEncoding { .. } => None,
        }
    }
}

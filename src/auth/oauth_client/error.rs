//! Errors of calls to another server.

use http::HeaderValue;

use crate::protocols::http::client::ClientError;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::sign::SigningError;

#[derive(Debug, thiserror::Error)]
pub enum OAuthClientError {
    /// The client secret is not UTF-8.
    #[error("the client secret is not UTF-8")]
    UnusableSecret,
    /// A token with characters that no header can have.
    #[error("the token has characters that no header can have")]
    UnusableToken,
    #[error("cannot sign the client assertion")]
    Assertion(#[source] SigningError),
    #[error("no response from {url}")]
    NoResponse { url: SecureUrl, source: ClientError },
    #[error("{url}: the response has Content-Encoding {coding:?}")]
    ContentEncoding { url: SecureUrl, coding: HeaderValue },
}

impl OAuthClientError {
    /// Returns true if the endpoint did not respond in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, OAuthClientError::NoResponse { source: ClientError::Timeout(_), .. })
    }
}

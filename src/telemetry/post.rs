//! Sends what the gateway reports to a server of the operator: audit events and spans. Any 2xx response means that the
//! server has accepted them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;

use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::types::private_file::{self, FileCreator};

/// The time is from the first packet to the response header. The response body is not read.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(10), body_size: 0, reach: Reach::Loopback, reads_body: |_| false };
/// The time is for the whole exchange. The body says what was not accepted, in a few words.
const WITH_BODY: Limits = Limits { body_size: 4 * 1024, reads_body: |head| head.status.is_success(), ..LIMITS };

/// A server that accepts reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    pub url: SecureUrl,
    /// CA certificates (PEM). `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// The key of the configuration and the file with the value of the Authorization header.
    pub authorization_file: Option<(&'static str, PathBuf)>,
}

/// Why a report was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("cannot read {key} {file}")]
    AuthorizationFile { key: &'static str, file: PathBuf, source: io::Error },
    #[error("{key} {file} is not a valid Authorization header value")]
    AuthorizationValue { key: &'static str, file: PathBuf },
    #[error("cannot send to {url}")]
    NoResponse { url: SecureUrl, source: ClientError },
    /// `retry_after`: how long the server asks to wait. A date in its place is ignored.
    #[error("{url}: the response is {status}")]
    Status { url: SecureUrl, status: StatusCode, retry_after: Option<Duration> },
}

impl Receiver {
    pub(super) async fn post(&self, content_type: &'static str, body: Bytes) -> Result<(), PostError> {
        self.exchange(content_type, body, &LIMITS).await.map(drop)
    }

    /// Also returns the body of the response; empty if it is larger than a few KiB.
    pub(super) async fn post_and_read(&self, content_type: &'static str, body: Bytes) -> Result<Bytes, PostError> {
        match self.exchange(content_type, body, &WITH_BODY).await {
            Err(PostError::NoResponse { source: ClientError::BodyTooLarge(_), .. }) => Ok(Bytes::new()),
            other => other,
        }
    }

    async fn exchange(&self, content_type: &'static str, body: Bytes, limits: &Limits) -> Result<Bytes, PostError> {
        let authorization = self.authorization_file.as_ref().map(|(key, file)| read_authorization(key, file));
        let response = self.send(authorization.transpose()?, content_type, body, limits).await;
        let url = || self.url.clone();
        let response = response.map_err(|source| PostError::NoResponse { url: url(), source })?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        if status.is_success() {
            Ok(response.into_body())
        } else {
            Err(PostError::Status { url: url(), status, retry_after })
        }
    }

    async fn send(
        &self,
        authorization: Option<HeaderValue>,
        content_type: &'static str,
        body: Bytes,
        limits: &Limits,
    ) -> Result<Response<Bytes>, ClientError> {
        let mut request = Request::post(&self.url.target)
            .header(header::HOST, &self.url.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, content_type);
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(ClientError::Request)?;
        client::send_to(&self.url, self.ca_file.as_deref(), request, limits).await
    }
}

/// The seconds of `Retry-After` (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// Reads the file on each call: a renewed token is used without a restart.
fn read_authorization(key: &'static str, file: &Path) -> Result<HeaderValue, PostError> {
    let text = private_file::read_to_string(file, FileCreator::Operator);
    let text = text.map_err(|source| PostError::AuthorizationFile { key, file: file.to_owned(), source })?;
    let invalid = |_| PostError::AuthorizationValue { key, file: file.to_owned() };
    let mut value = HeaderValue::from_str(text.trim()).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}

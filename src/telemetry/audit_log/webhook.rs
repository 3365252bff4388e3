//! The audit webhook: one POST request with a line of JSON for each event (`application/x-ndjson`). Any 2xx response
//! means that the server has stored the events.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;

use super::settings::Webhook;
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::tokens::audit_event::Recorded;
use crate::types::private_file::{self, Origin};

/// The time is from the first packet to the response header. The response body is not read.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(10), body_size: 0, reach: Reach::Loopback, reads_body: |_| false };

/// Why events were not delivered.
#[derive(Debug)]
pub(super) enum WebhookError {
    AuthorizationFile { file: PathBuf, source: io::Error },
    AuthorizationValue { file: PathBuf },
    NoResponse { url: SecureUrl, source: ClientError },
    Status { url: SecureUrl, status: StatusCode },
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebhookError::AuthorizationFile { file, .. } => {
                write!(f, "cannot read audit.webhook_authorization_file {}", file.display())
            }
            WebhookError::AuthorizationValue { file } => {
                write!(
                    f,
                    "audit.webhook_authorization_file {} is not a valid Authorization header value",
                    file.display()
                )
            }
            WebhookError::NoResponse { url, .. } => write!(f, "cannot send to {url}"),
            WebhookError::Status { url, status } => write!(f, "{url}: the response is {status}"),
        }
    }
}

impl Error for WebhookError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            WebhookError::AuthorizationFile { source, .. } => Some(source),
            WebhookError::NoResponse { source, .. } => Some(source),
            WebhookError::AuthorizationValue { .. } | WebhookError::Status { .. } => None,
        }
    }
}

pub(super) async fn post(webhook: &Webhook, events: &[Recorded]) -> Result<(), WebhookError> {
    let authorization = webhook.authorization_file.as_deref().map(read_authorization).transpose()?;
    let response = send(webhook, authorization, events).await;
    let url = || webhook.url.clone();
    let status = response.map_err(|source| WebhookError::NoResponse { url: url(), source })?.status();
    if status.is_success() { Ok(()) } else { Err(WebhookError::Status { url: url(), status }) }
}

async fn send(
    webhook: &Webhook,
    authorization: Option<HeaderValue>,
    events: &[Recorded],
) -> Result<Response<Bytes>, ClientError> {
    let lines: String = events.iter().map(|event| event.line() + "\n").collect();
    let mut request = Request::post(&webhook.url.target)
        .header(header::HOST, &webhook.url.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, "application/x-ndjson");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Full::from(lines)).map_err(ClientError::Request)?;
    client::send_to(&webhook.url, webhook.ca_file.as_deref(), request, &LIMITS).await
}

/// Reads the file on each call: a renewed token is used without a restart.
fn read_authorization(file: &Path) -> Result<HeaderValue, WebhookError> {
    let text = private_file::read_to_string(file, Origin::Operator);
    let text = text.map_err(|source| WebhookError::AuthorizationFile { file: file.to_owned(), source })?;
    let mut value =
        HeaderValue::from_str(text.trim()).map_err(|_| WebhookError::AuthorizationValue { file: file.to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

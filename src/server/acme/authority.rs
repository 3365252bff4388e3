//! Requests to the authority. Each has a connection of its own, and a limit of time and size.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use super::failure::Failure;
use super::settings::AcmeSettings;
use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;

/// An authority may be in a private network, or on this machine.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(30), body_size: 256 * 1024, reach: Reach::Loopback, reads_body: |_| true };

/// The longest time for which the authority can keep an order waiting, in seconds.
const LONGEST_PAUSE: u64 = 24 * 60 * 60;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Authority {
    pub(super) settings: Arc<AcmeSettings>,
    /// Of the last response that was an error, in seconds; 0: none.
    retry_after: Arc<AtomicU64>,
}

impl Authority {
    pub(super) fn new(settings: Arc<AcmeSettings>) -> Self {
        Authority { settings, retry_after: Arc::default() }
    }

    /// How long the authority asks to wait, since the last call.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        Some(self.retry_after.swap(0, Ordering::Relaxed)).filter(|pause| *pause > 0).map(Duration::from_secs)
    }

    /// A document that needs no account.
    pub(super) async fn get(&self, url: &str) -> Result<Response<Bytes>, Failure> {
        let request = Request::get(url).body(Full::default()).map_err(ClientError::Request);
        let response = self.send(request.map_err(Failure::Absent)?).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(Failure::WrongAnswer("the authority responds with an error"))
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Failure> {
        let (mut head, body) = request.into_parts();
        let url = SecureUrl::parse(&head.uri.to_string(), false);
        let directory = &self.settings.directory;
        // What the authority names must be protected as well as the directory.
        let url = url.ok().filter(|url| url.tls || !directory.tls);
        let url = url.ok_or(Failure::WrongAnswer("the authority names a URL that is not https://"))?;
        let invalid = |error: http::Error| Failure::Absent(ClientError::Request(error));
        head.uri = url.target.parse().map_err(|_| Failure::WrongAnswer("the authority names an invalid URL"))?;
        let host = HeaderValue::from_str(&url.authority).map_err(|error| invalid(error.into()))?;
        head.headers.insert(header::HOST, host);
        head.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let request = Request::from_parts(head, body);
        let response = client::send_to(&url, self.settings.directory_ca.as_deref(), request, &LIMITS).await;
        let mut response = response.map_err(Failure::Absent)?;
        limit_retry_after(response.headers_mut());
        if !response.status().is_success() {
            let pause = response.headers().get(header::RETRY_AFTER).and_then(seconds);
            self.retry_after.store(pause.unwrap_or(0), Ordering::Relaxed);
        }
        Ok(response)
    }
}

/// instant-acme adds it to the time of now, which has an end.
fn limit_retry_after(headers: &mut HeaderMap) {
    let Some(value) = headers.get(header::RETRY_AFTER) else { return };
    if !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit) {
        let pause = seconds(value).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        headers.insert(header::RETRY_AFTER, pause.into());
    }
}

fn seconds(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

impl HttpClient for Authority {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let authority = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let sent = authority.send(Request::from_parts(head, Full::new(body))).await;
            let (parts, body) = sent.map_err(into_error)?.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

fn into_error(failure: Failure) -> Error {
    match failure {
        Failure::Absent(error) => Error::Other(Box::new(error)),
        Failure::Authority(error) => error,
        Failure::WrongAnswer(problem) => Error::Str(problem),
        other => Error::Other(other.text().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_an_end() {
        for (value, expected) in [
            ("0", "0"),
            ("120", "120"),
            ("18446744073709551615", "86400"),
            ("99999999999999999999999", "86400"),
            ("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:59 GMT"),
            ("", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(value));
            limit_retry_after(&mut headers);
            assert_eq!(headers[header::RETRY_AFTER], expected, "{value}");
        }
    }
}

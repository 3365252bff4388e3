//! One GET request for a document about keys.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;

use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::http::content_coding;
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;

/// Maximum time from the first packet to the last byte.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of a document in bytes. A large set has a dozen keys of 2 KB.
const SIZE_LIMIT: usize = 256 * 1024;
/// Maximum characters of a redirect's `Location` in an error message.
const SHOWN_LOCATION: usize = 200;

pub(super) enum FetchOutcome {
    FetchedPage(FetchedPage),
    /// The document is the one that the ETag of the request names.
    NotModified {
        max_age: Option<Duration>,
    },
}

pub(super) struct FetchedPage {
    pub(super) text: String,
    pub(super) etag: Option<HeaderValue>,
    /// How long the document can be used, by its `Cache-Control`.
    pub(super) max_age: Option<Duration>,
    /// The reach of the server that sent it.
    pub(super) reach: Reach,
}

/// Why a document was not fetched.
#[derive(Debug)]
pub(super) struct FetchError {
    url: SecureUrl,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    NoResponse(ClientError),
    Redirect { status: StatusCode, location: Option<String> },
    Status(StatusCode),
    ContentEncoding(HeaderValue),
    NotUtf8,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot fetch {}", self.url)?;
        match &self.problem {
            Problem::NoResponse(_) => Ok(()),
            Problem::Redirect { status, location } => {
                // Its query can have a secret, as that of the URL.
                let location = location.as_deref().and_then(|url| url.split('?').next()).unwrap_or("no location");
                write!(f, ": the response is a redirect ({status}) to {location}; configure the final URL")
            }
            Problem::Status(status) => write!(f, ": the response is {status}"),
            Problem::ContentEncoding(coding) => write!(f, ": the response has Content-Encoding {coding:?}"),
            Problem::NotUtf8 => f.write_str(": the response is not UTF-8"),
        }
    }
}

impl Error for FetchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::NoResponse(error) => Some(error),
            _ => None,
        }
    }
}

/// Fetches `url`. `etag` is that of the document that the caller has already. `reach` is the least that the server must
/// have.
pub(super) async fn get(
    url: &SecureUrl,
    ca_file: Option<&Path>,
    etag: Option<&HeaderValue>,
    time_limit: Duration,
    reach: Reach,
) -> Result<FetchOutcome, FetchError> {
    let response = send(url, ca_file, etag, time_limit, reach).await.map_err(Problem::NoResponse);
    let outcome = response.and_then(|response| read(response, etag.is_some()));
    outcome.map_err(|problem| FetchError { url: url.clone(), problem })
}

async fn send(
    url: &SecureUrl,
    ca_file: Option<&Path>,
    etag: Option<&HeaderValue>,
    time_limit: Duration,
    reach: Reach,
) -> Result<Response<Bytes>, ClientError> {
    let mut request = Request::get(&url.target)
        .header(header::HOST, &url.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/jwk-set+json, application/json")
        .header(header::ACCEPT_ENCODING, "identity");
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let request = request.body(Full::default()).map_err(ClientError::Request)?;
    let reads_body = |head: &Parts| head.status == StatusCode::OK;
    let limits = Limits { time: time_limit, body_size: SIZE_LIMIT, reach, reads_body };
    client::send_to(url, ca_file, request, &limits).await
}

fn read(response: Response<Bytes>, has_etag: bool) -> Result<FetchOutcome, Problem> {
    let (head, body) = response.into_parts();
    let max_age = max_age(&head.headers);
    // The client always names the server.
    let reach = head.extensions.get::<SocketAddr>().map_or(Reach::Public, |server| Reach::of(server.ip()));
    match head.status {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED if has_etag => return Ok(FetchOutcome::NotModified { max_age }),
        status if status.is_redirection() => {
            return Err(Problem::Redirect { status, location: location(&head.headers) });
        }
        status => return Err(Problem::Status(status)),
    }
    if let Some(coding) = content_coding::other_than_identity(&head.headers) {
        return Err(Problem::ContentEncoding(coding.clone()));
    }
    let text = String::from_utf8(body.into()).map_err(|_| Problem::NotUtf8)?;
    let etag = head.headers.get(header::ETAG).cloned();
    Ok(FetchOutcome::FetchedPage(FetchedPage { text, etag, max_age, reach }))
}

fn location(headers: &HeaderMap) -> Option<String> {
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    Some(location.escape_debug().take(SHOWN_LOCATION).collect())
}

/// `max-age` minus the time in caches (`Age`, RFC 9111 section 5.1); zero if the document must not be cached.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut max_age = None;
    for directive in values.flat_map(|value| value.split(',')) {
        let (name, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return Some(Duration::ZERO),
            "max-age" => max_age = value.trim_matches('"').parse().ok(),
            _ => {}
        }
    }
    let age = headers.get(header::AGE).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    Some(Duration::from_secs(u64::saturating_sub(max_age?, age)))
}

#[cfg(test)]
mod tests;

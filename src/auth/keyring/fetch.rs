//! One GET of a document about keys, from somebody who may be slow, broken or hostile.
//!
//! Every answer is bounded in time and size. Redirects are not followed: they would let whoever answers choose the next
//! host, and the operator can name the right address instead. The connection is made for one answer and ends with it.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::protocols::http::body::{self, Body};
use crate::protocols::tls;
use crate::protocols::url::SecureUrl;
use crate::types::reject::with_causes;

/// From the first packet to the last byte.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(5);
/// A large set has a dozen keys of 2 KB.
const SIZE_LIMIT: u64 = 256 * 1024;
const HEAD_LIMIT: usize = 64 * 1024;

pub(super) enum FetchOutcome {
    FetchedPage(FetchedPage),
    /// The page is the one that our ETag names.
    NotModified {
        max_age: Option<Duration>,
    },
}

pub(super) struct FetchedPage {
    pub(super) text: String,
    pub(super) etag: Option<HeaderValue>,
    /// How long it may be relied on, by its `Cache-Control`.
    pub(super) max_age: Option<Duration>,
}

/// `etag`: of the page that is here already.
pub(super) async fn get(
    url: &SecureUrl,
    ca_file: Option<&Path>,
    etag: Option<&HeaderValue>,
    time_limit: Duration,
) -> Result<FetchOutcome, String> {
    match tokio::time::timeout(time_limit, connect_and_ask(url, ca_file, etag)).await {
        Ok(answer) => answer.map_err(|fault| format!("{url}: {fault}")),
        Err(_) => Err(format!("{url}: no complete answer within {}ms", time_limit.as_millis())),
    }
}

async fn connect_and_ask(
    url: &SecureUrl,
    ca_file: Option<&Path>,
    etag: Option<&HeaderValue>,
) -> Result<FetchOutcome, String> {
    let fault = |error: std::io::Error| format!("no connection: {error}");
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(fault)?;
    if !url.tls {
        return ask(stream, url, etag).await;
    }
    // Read anew each time, which is seldom: a CA that was renewed is trusted without a restart.
    let config = tls::client_config(ca_file, &[b"http/1.1"]).map_err(|error| with_causes(&error))?;
    let name = ServerName::try_from(url.host.clone()).map_err(|_| "no name that TLS can check")?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(fault)?;
    ask(stream, url, etag).await
}

async fn ask<S>(stream: S, url: &SecureUrl, etag: Option<&HeaderValue>) -> Result<FetchOutcome, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = request(url, etag)?;
    let handshake = http1::Builder::new().max_buf_size(HEAD_LIMIT).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(show)?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(show)?;
        read(response, etag.is_some()).await
    };
    // The connection runs here and not in a task of its own: it ends with the answer, or with the patience for it.
    let (mut asking, mut connection) = (pin!(asking), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut asking => answer,
        _ = &mut connection => asking.await,
    }
}

fn request(url: &SecureUrl, etag: Option<&HeaderValue>) -> Result<Request<Body>, String> {
    let mut request = Request::get(&url.target)
        .header(header::HOST, &url.authority)
        .header(header::USER_AGENT, concat!("bearward/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "application/jwk-set+json, application/json")
        .header(header::ACCEPT_ENCODING, "identity");
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    request.body(Body::empty()).map_err(|error| error.to_string())
}

async fn read(response: Response<Incoming>, asked_by_etag: bool) -> Result<FetchOutcome, String> {
    let (head, body) = response.into_parts();
    let max_age = max_age(&head.headers);
    match head.status {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED if asked_by_etag => return Ok(FetchOutcome::NotModified { max_age }),
        status if status.is_redirection() => {
            let to = head.headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to: String = to.escape_debug().take(200).collect();
            return Err(format!("{status}, which is not followed; it leads to {to}"));
        }
        status => return Err(format!("the answer is {status}")),
    }
    if let Some(coding) = head.headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        return Err(format!("the answer is encoded ({coding:?}), which was not asked for"));
    }
    let body = body::read(Body::incoming(body), SIZE_LIMIT).await;
    let body = body.map_err(|reject| format!("the answer cannot be read: {}", reject.detail))?;
    let text = String::from_utf8(body.into()).map_err(|_| "the answer is not UTF-8")?;
    Ok(FetchOutcome::FetchedPage(FetchedPage { text, etag: head.headers.get(header::ETAG).cloned(), max_age }))
}

/// `max-age`, less the time that a cache on the way kept the page. What must not be cached at all is good for no time.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut age = None;
    for directive in values.flat_map(|value| value.split(',')) {
        let (name, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return Some(Duration::ZERO),
            "max-age" => age = value.trim_matches('"').parse().ok(),
            _ => {}
        }
    }
    let kept = headers.get(header::AGE).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    Some(Duration::from_secs(u64::saturating_sub(age?, kept)))
}

fn show(error: hyper::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;

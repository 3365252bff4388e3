//! Renewal information (RFC 9773): when the authority wants a certificate to be renewed.

use std::time::Duration;

use bytes::Bytes;
use http::header;
use serde_json::Value;

use super::authority::Authority;
use super::failure::Failure;
use crate::types::clock::UnixTime;

/// What the authority suggests, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) start: u64,
    /// After the start.
    pub(super) end: u64,
    /// `Retry-After`
    pub(super) ask_again: Option<Duration>,
}

/// `id`: see [`Issued::id`](crate::protocols::tls::Issued). `None`: the authority offers no such information.
pub(super) async fn ask(authority: &Authority, id: &str) -> Result<Option<Window>, Failure> {
    let directory = authority.get(&authority.settings.directory.text()).await?;
    let Some(url) = text(directory.body(), |directory| directory.get("renewalInfo")) else { return Ok(None) };
    let response = authority.get(&format!("{}/{id}", url.trim_end_matches('/'))).await?;
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let ask_again = retry_after.and_then(|value| value.parse().ok()).map(Duration::from_secs);
    let time = |name: &'static str| {
        let text = text(response.body(), |info| info.get("suggestedWindow")?.get(name))?;
        Some(UnixTime::parse(&text)?.as_secs())
    };
    match (time("start"), time("end")) {
        (Some(start), Some(end)) if start < end => Ok(Some(Window { start, end, ask_again })),
        // RFC 9773 section 4.2: a window that ends before it begins is no answer.
        _ => Err(Failure::WrongAnswer("the renewal information has no suggestedWindow")),
    }
}

fn text(body: &Bytes, find: impl Fn(&Value) -> Option<&Value>) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    Some(find(&body)?.as_str()?.to_owned())
}

//! A record as a line of text.
//!
//! Each request pays for its line, about half a microsecond. So members are written one by one, strings
//! by serde_json's escaper, what is missing is left out, and the time is formatted once a second.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;

use http::Version;

use super::{Format, Record};
use crate::protocols::http::path::decode;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;

/// Writes lines in one format.
pub(super) struct Lines {
    format: Format,
    second: CachedSecond,
}

impl Lines {
    pub(super) fn new(format: Format) -> Self {
        Lines { format, second: CachedSecond::default() }
    }

    /// Adds the line of one record to the page.
    pub(super) fn write(&mut self, record: &Record, page: &mut Vec<u8>) {
        let path = without_tokens(record.uri.path());
        match self.format {
            Format::Json => self.write_json(record, &path, page),
            Format::Text => self.write_text(record, &path, page),
        }
        page.push(b'\n');
    }

    /// Names are part of the interface to operators. What is not known is left out.
    fn write_json(&mut self, record: &Record, path: &str, page: &mut Vec<u8>) {
        page.extend_from_slice(b"{\"time\":\"");
        self.second.write(record.time, page);
        page.extend_from_slice(b"\",\"request_id\":\"");
        page.extend_from_slice(&record.request_id.as_hex());
        page.push(b'"');
        let caller = record.caller.as_deref();
        if let Some(client) = record.client {
            member(page, "client");
            address(page, client.to_canonical());
        }
        plain(page, "method", record.method.as_str());
        optional(page, "host", record.host.as_ref().and_then(|host| host.to_str().ok()));
        text(page, "path", path);
        plain(page, "protocol", protocol(record.version));
        number(page, "status", record.status.into());
        if let Some(refused) = &record.refused {
            plain(page, "reason", refused.reason.code());
        }
        if let Some(observed) = &record.observed {
            plain(page, "observed", observed.reason.code());
        }
        optional(page, "detail", detail(record));
        optional(page, "route", record.route.as_deref());
        optional(page, "upstream", record.upstream.as_deref());
        optional(page, "issuer", caller.map(|caller| &*caller.issuer));
        optional(page, "subject", caller.map(|caller| &*caller.subject).filter(|subject| !subject.is_empty()));
        if let Some(token_id) = record.token_id.or(caller.and_then(|caller| caller.family)) {
            display(page, "token_id", token_id);
        }
        number(page, "duration_us", u64::try_from(record.duration.as_micros()).unwrap_or(u64::MAX));
        number(page, "sent", record.sent);
        page.extend_from_slice(if record.complete { &b",\"complete\":true"[..] } else { b",\"complete\":false" });
        optional(page, "ended", record.ended.map(CloseReason::code));
        if let Some(agent) = &record.user_agent {
            text(page, "user_agent", &String::from_utf8_lossy(agent.as_bytes()));
        }
        page.push(b'}');
    }

    /// For people. Quoted with escapes: nothing that a client sent can begin a line of its own.
    fn write_text(&mut self, record: &Record, path: &str, page: &mut Vec<u8>) {
        self.second.write(record.time, page);
        let client = record.client.map_or_else(|| "-".into(), |address| address.to_canonical().to_string());
        let (observed, reason) = match (&record.refused, &record.observed) {
            (Some(refused), _) => ("", refused.reason.code()),
            (None, Some(observed)) => ("observed:", observed.reason.code()),
            (None, None) => ("", "-"),
        };
        // Writing to memory does not fail.
        let _ = write!(
            page,
            " {client} {} {:?} {path:?} {} {} {}us {} {:?} {observed}{reason} {} {:?}",
            record.method,
            record.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or("-"),
            protocol(record.version),
            record.status,
            record.duration.as_micros(),
            match record.ended {
                Some(ended) => ended.code(),
                None if record.complete => "complete",
                None => "cut",
            },
            record.caller.as_ref().map_or("-", |caller| &*caller.subject),
            record.request_id,
            detail(record).unwrap_or("-"),
        );
    }
}

/// Of what ended the request, or of what would have.
fn detail(record: &Record) -> Option<&str> {
    let reject = record.refused.as_ref().or(record.observed.as_deref())?;
    Some(&*reject.detail).filter(|detail| !detail.is_empty())
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

fn text(page: &mut Vec<u8>, name: &str, value: &str) {
    member(page, name);
    // Escapes whatever needs it. Writing to memory does not fail.
    let _ = serde_json::to_writer(page, value);
}

/// What has nothing in it that JSON would escape: words of ours, and methods, which are tokens (RFC 9110 section 9.1).
fn plain(page: &mut Vec<u8>, name: &str, value: &str) {
    member(page, name);
    page.push(b'"');
    page.extend_from_slice(value.as_bytes());
    page.push(b'"');
}

/// What is written without anything that JSON would escape.
fn display(page: &mut Vec<u8>, name: &str, value: impl fmt::Display) {
    member(page, name);
    let _ = write!(page, "\"{value}\"");
}

/// In quotes. IPv4 by its numbers: the general way of writing an address costs a quarter of the line.
fn address(page: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        let _ = write!(page, "\"{address}\"");
        return;
    };
    let mut separator = b'"';
    for octet in address.octets() {
        page.push(separator);
        let _ = serde_json::to_writer(&mut *page, &octet);
        separator = b'.';
    }
    page.push(b'"');
}

fn optional(page: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        text(page, name, value);
    }
}

fn number(page: &mut Vec<u8>, name: &str, value: u64) {
    member(page, name);
    let _ = serde_json::to_writer(page, &value);
}

fn member(page: &mut Vec<u8>, name: &str) {
    page.extend_from_slice(b",\"");
    page.extend_from_slice(name.as_bytes());
    page.extend_from_slice(b"\":");
}

/// The second that was written last, as text: thousands of lines share it.
#[derive(Default)]
struct CachedSecond {
    secs: u64,
    /// `2026-11-20T23:05:21.`
    text: String,
}

impl CachedSecond {
    fn write(&mut self, time: UnixTime, page: &mut Vec<u8>) {
        if time.as_secs() != self.secs || self.text.is_empty() {
            self.secs = time.as_secs();
            self.text = UnixTime::from_secs(self.secs).to_string();
            // Without the milliseconds and the Z.
            self.text.truncate(self.text.len().saturating_sub(4));
        }
        page.extend_from_slice(self.text.as_bytes());
        let millis = time.as_millis() % 1000;
        page.extend([millis / 100, millis / 10 % 10, millis % 10].map(|digit| b'0' + digit as u8));
        page.push(b'Z');
    }
}

/// The path, with every segment cut where a token begins: clients put them there, by right (`DELETE /token/…` takes a refresh
/// token) or by mistake. Escapes hide nothing: an escaped token is as good as a plain one.
fn without_tokens(path: &str) -> Cow<'_, str> {
    if !may_have_token(path) {
        return Cow::Borrowed(path);
    }
    let begins_in = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        token_in(&text).map(|at| text[..at].to_owned())
    };
    if begins_in(&decode(path.as_bytes())).is_none() {
        return Cow::Borrowed(path);
    }
    let cut = |segment: &str| match begins_in(&decode(segment.as_bytes())) {
        Some(before) => format!("{before}[token]"),
        None => segment.to_owned(),
    };
    Cow::Owned(path.split('/').map(cut).collect::<Vec<_>>().join("/"))
}

/// Each token has one of these in it, or two dots, or hides that behind an escape. Most paths have nothing of it, and are looked
/// at once.
fn may_have_token(path: &str) -> bool {
    let mut dots = 0;
    path.bytes().any(|byte| {
        dots += u32::from(byte == b'.');
        dots == 2 || matches!(byte, b'_' | b'J' | b'%')
    })
}

/// Where the first token begins.
fn token_in(text: &str) -> Option<usize> {
    const BEGINNINGS: [&str; 2] = ["bwr1_", "eyJ"];
    let known = BEGINNINGS.iter().filter_map(|beginning| text.find(beginning));
    known.chain(jws_in(text)).min()
}

/// Where a signed token begins by its shape: three parts of base64url with dots between (RFC 7515 section 3.1), the last empty
/// if it is not signed. `eyJ` is how most begin, but a space in the JSON makes it something else.
fn jws_in(text: &str) -> Option<usize> {
    // `{"alg":"none"}` has 19 characters, a MAC by SHA-256 has 43, and no signature is shorter. Names of files that are as long
    // as that end in something short.
    const HEADER: usize = 19;
    const CLAIMS: usize = 10;
    const SIGNATURE: usize = 43;
    let is_base64url = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let dots = || text.match_indices('.').map(|(at, _)| at);
    dots().zip(dots().skip(1)).find_map(|(first, second)| {
        let header = text.as_bytes()[..first].iter().rev().take_while(is_base64url).count();
        let claims = text.as_bytes()[first + 1..second].iter().take_while(is_base64url).count();
        let signature = text.as_bytes()[second + 1..].iter().take_while(is_base64url).count();
        let whole = claims == second - first - 1 && (signature == 0 || signature >= SIGNATURE);
        (whole && header >= HEADER && claims >= CLAIMS).then(|| first - header)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::reject::{Reason, Reject};

    fn written(format: Format, record: &Record) -> String {
        let mut page = Vec::new();
        Lines::new(format).write(record, &mut page);
        String::from_utf8(page).expect("lines are text")
    }

    fn record() -> Record {
        Record {
            time: UnixTime::from_millis(1_700_000_000_042),
            uri: "/a/bwr1_secret/eyJsecret?secret".parse().expect("a target"),
            user_agent: Some(http::HeaderValue::from_bytes(b"a\"b\xff").expect("a header value")),
            refused: Some(Reject::new(Reason::BadSignature, "odd\n\"thing\"")),
            ..Record::default()
        }
    }

    #[test]
    fn json_lines_are_json_without_tokens_and_queries() {
        let line = written(Format::Json, &record());
        let json: serde_json::Value = serde_json::from_str(&line).expect("a line is JSON");
        assert_eq!(json["time"], "2023-11-14T22:13:20.042Z");
        assert_eq!(json["path"], "/a/[token]/[token]");
        assert_eq!(json["detail"], "odd\n\"thing\"");
        assert_eq!(json["complete"], false);
        assert_eq!(json["user_agent"], "a\"b\u{fffd}");
        assert!(!line.contains("secret") && line.matches('\n').count() == 1, "{line}");
    }

    #[test]
    fn addresses_are_written_as_everywhere() {
        for client in ["203.0.113.7", "0.0.0.0", "255.255.255.255", "2001:db8::7", "::1"] {
            let record = Record { client: client.parse().ok(), ..record() };
            let json: serde_json::Value =
                serde_json::from_str(&written(Format::Json, &record)).expect("a line is JSON");
            assert_eq!(json["client"], client);
        }
        let mapped = Record { client: "::ffff:203.0.113.7".parse().ok(), ..record() };
        assert!(written(Format::Json, &mapped).contains("\"client\":\"203.0.113.7\""));
    }

    #[test]
    fn a_path_is_cut_where_a_token_begins_however_it_is_spelled() {
        for (path, logged) in [
            ("/a/b%20c", "/a/b%20c"),
            ("/a/x-eyJsecret/b", "/a/x-[token]/b"),
            ("/a/eyJsecret.bwr1_secret", "/a/[token]"),
            ("/a/bwr1_secret.eyJsecret", "/a/[token]"),
            ("/a/%62wr1_secret/b%20c", "/a/[token]/b%20c"),
            ("/%C3%A9%65%79Jsecret", "/é[token]"),
            ("/a%2FeyJsecret", "/a/[token]"),
            (
                "/static/vendors-node-modules.0123456789abcdef0123.js",
                "/static/vendors-node-modules.0123456789abcdef0123.js",
            ),
            ("/org.springframework.context.annotation", "/org.springframework.context.annotation"),
            ("/a/b.c/d.e", "/a/b.c/d.e"),
        ] {
            assert_eq!(without_tokens(path), logged, "{path}");
        }
    }

    /// The header is `{ "alg":"none"}`.
    #[test]
    fn a_path_is_cut_where_something_has_the_shape_of_a_token() {
        const MESSAGE: &str = "eyAiYWxnIjoibm9uZSJ9.eyAic3ViIjoiYSJ9";
        let signed = format!("{MESSAGE}.{}", "s".repeat(43));
        for token in [format!("{MESSAGE}."), signed.clone(), signed.replace('.', "%2e"), format!("{signed}.json")] {
            assert_eq!(without_tokens(&format!("/a.b/{token}/c.d")), "/a.b/[token]/c.d");
            assert_eq!(without_tokens(&format!("/token={token}")), "/token=[token]");
            assert_eq!(without_tokens(&format!("/v1.2.{token}")), "/v1.2.[token]");
        }
        assert_eq!(without_tokens(MESSAGE), MESSAGE);
    }

    #[test]
    fn text_lines_stay_one_line() {
        let line = written(Format::Text, &record());
        assert!(line.starts_with("2023-11-14T22:13:20.042Z - GET \"-\" \"/a/[token]/[token]\" HTTP/1.1 0 "), "{line}");
        assert!(!line.contains("secret") && line.matches('\n').count() == 1, "{line}");
    }

    #[test]
    fn what_is_only_observed_is_no_refusal() {
        let observed = std::sync::Arc::new(Reject::new(Reason::Expired, "too late"));
        let record = Record { refused: None, observed: Some(observed), ..record() };
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json, &record)).expect("a line is JSON");
        assert_eq!((json["observed"].as_str(), json["detail"].as_str()), (Some("expired"), Some("too late")));
        assert!(json.get("reason").is_none());
        assert!(written(Format::Text, &record).contains(" observed:expired "));
    }

    #[test]
    fn a_stream_that_was_ended_says_why() {
        let record = Record { ended: Some(CloseReason::Token(Reason::Revoked)), ..record() };
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json, &record)).expect("a line is JSON");
        assert_eq!((json["ended"].as_str(), json["complete"].as_bool()), (Some("revoked"), Some(false)));
        assert!(written(Format::Text, &record).contains(" revoked \""));
    }

    #[test]
    fn the_time_follows_the_record() {
        let mut second = CachedSecond::default();
        let mut stamp = |millis| {
            let mut page = Vec::new();
            second.write(UnixTime::from_millis(millis), &mut page);
            String::from_utf8(page).expect("text")
        };
        assert_eq!(stamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp(1_999), "1970-01-01T00:00:01.999Z");
        assert_eq!(stamp(1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(stamp(999), "1970-01-01T00:00:00.999Z");
    }
}

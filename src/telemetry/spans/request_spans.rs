//! The spans of one request: a span of the server, and one of the client for each attempt at a server of the upstream.
//! Names and attributes are the stable ones of the semantic conventions of OpenTelemetry for HTTP.
//!
//! No query, no token and no subject is in a span.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use http::{Method, Version};

use super::batch::{SPANS, Value, attribute};
use crate::protocols::http::trace_context::TraceContext;
use crate::protocols::protobuf::Message;
use crate::telemetry::access_log::{Record, cut, without_tokens};
use crate::types::clock::UnixTime;

// Span
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const ATTRIBUTES: u32 = 9;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;
const KIND_SERVER: u64 = 2;
const KIND_CLIENT: u64 = 3;
// Status
const CODE: u32 = 3;
const ERROR: u64 = 2;

/// `error.type` if the client left before the response.
const CLIENT_CLOSED: &str = "client_closed";

/// `started`: when `record.time` was read. `route`: the path of its route. `max_field`: Maximum bytes of one text.
pub(super) fn encode(
    record: &Record,
    trace: &TraceContext,
    started: Instant,
    route: Option<&str>,
    max_field: usize,
) -> Vec<u8> {
    let path = without_tokens(record.path());
    let time = precise(record.time, SystemTime::now(), started.elapsed());
    let spans = RequestSpans { record, trace, started, time, route, max_field, path: cut(&path, max_field) };
    let mut message = Message::default();
    message.message(SPANS, |span| spans.of_server(span));
    spans.of_attempts(&mut message);
    message.0
}

/// `time` is in whole milliseconds, so a span would begin before that of a proxy on the same machine. The rest comes
/// from the clock now, which may have been set since: then it is as near as the milliseconds allow.
fn precise(time: UnixTime, now: SystemTime, elapsed: Duration) -> Duration {
    let first = Duration::from_millis(time.as_millis());
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(elapsed).clamp(first, first + Duration::from_nanos(999_999))
}

struct RequestSpans<'r> {
    record: &'r Record,
    trace: &'r TraceContext,
    started: Instant,
    /// The time of `started`, since 1970.
    time: Duration,
    route: Option<&'r str>,
    max_field: usize,
    path: Cow<'r, str>,
}

/// One attempt at a server.
struct Attempt<'r> {
    retries: usize,
    server: Option<&'r str>,
    began: Instant,
    ended: Instant,
    /// The status of the response; 0 without one.
    status: u16,
    /// Why there was none, or why it broke off.
    error: Option<&'static str>,
}

impl RequestSpans<'_> {
    fn of_server(&self, span: &mut Message) {
        let record = self.record;
        let (method, _) = known_method(&record.method);
        let name = match self.route {
            Some(route) => format!("{method} {route}"),
            None => method.to_owned(),
        };
        self.begin(span, self.trace.span_id, self.trace.parent, KIND_SERVER, &name);
        self.times(span, self.started, self.started + record.duration);
        self.method(span);
        self.optional(span, "http.route", self.route);
        self.optional(span, "bearward.route", record.route.as_deref());
        self.text(span, "url.path", &self.path);
        self.text(span, "url.scheme", if record.tls.is_some() { "https" } else { "http" });
        self.server(span, record.host());
        let client = record.client.map(|client| client.to_canonical().to_string());
        self.optional(span, "client.address", client.as_deref());
        self.text(span, "network.protocol.name", "http");
        self.text(span, "network.protocol.version", version(record.version));
        self.text(span, "bearward.request_id", &String::from_utf8_lossy(&record.request_id.as_hex()));
        let reason = record.rejected.as_ref().map(|reject| reject.reason.code());
        self.optional(span, "bearward.reason", reason);
        let error = match record.status {
            0 => Some(CLIENT_CLOSED),
            // For a server, the fault of a client is no error.
            100..500 => record.broke_off(),
            _ => reason.or(record.broke_off()),
        };
        self.status(span, record.status, error, 500);
    }

    fn of_attempts(&self, message: &mut Message) {
        let record = self.record;
        let attempts = &record.attempts;
        let Some((began, ended)) = attempts.last() else { return };
        let failed = attempts.failed();
        let server = |at: Option<usize>| record.upstream.as_ref()?.servers.get(at?).map(String::as_str);
        for (retries, failed) in failed.iter().enumerate() {
            let server = server(failed.server);
            let error = Some(failed.reason.code());
            let attempt = Attempt { retries, server, began: failed.began, ended: failed.ended, status: 0, error };
            message.message(SPANS, |span| self.of_attempt(span, &attempt));
        }
        // A rejection means that the backend sent no response, or none that can be used.
        let (status, error) = match &record.rejected {
            Some(reject) => (0, Some(reject.reason.code())),
            None if record.status == 0 => (0, Some(CLIENT_CLOSED)),
            None => (record.status, record.broke_off()),
        };
        let attempt = Attempt { retries: failed.len(), server: record.server(), began, ended, status, error };
        message.message(SPANS, |span| self.of_attempt(span, &attempt));
    }

    fn of_attempt(&self, span: &mut Message, attempt: &Attempt<'_>) {
        let (method, _) = known_method(&self.record.method);
        let id = self.trace.attempt_span(attempt.retries);
        self.begin(span, id, Some(self.trace.span_id), KIND_CLIENT, method);
        self.times(span, attempt.began, attempt.ended);
        self.method(span);
        self.server(span, attempt.server);
        let upstream = self.record.upstream.as_ref();
        if let (Some(upstream), Some(server)) = (upstream, attempt.server) {
            // Without the query, as everywhere.
            let path = if self.path.starts_with('/') { &*self.path } else { "" };
            self.text(span, "url.full", &format!("{}://{server}{path}", upstream.scheme));
        }
        self.text(span, "url.path", &self.path);
        self.optional(span, "bearward.upstream", upstream.map(|upstream| &*upstream.name));
        if attempt.retries > 0 {
            attribute(span, ATTRIBUTES, "http.request.resend_count", Value::Integer(attempt.retries as u64));
        }
        self.status(span, attempt.status, attempt.error, 400);
    }

    fn begin(&self, span: &mut Message, id: u64, parent: Option<u64>, kind: u64, name: &str) {
        span.bytes(TRACE_ID, &self.trace.trace_id);
        span.bytes(SPAN_ID, &id.to_be_bytes());
        if let Some(parent) = parent {
            span.bytes(PARENT_SPAN_ID, &parent.to_be_bytes());
        }
        span.bytes(NAME, cut(name, self.max_field).as_bytes());
        span.number(KIND, kind);
        span.fixed32(FLAGS, self.trace.flags().into());
    }

    fn times(&self, span: &mut Message, began: Instant, ended: Instant) {
        let nanos = |at: Instant| {
            let time = self.time + at.saturating_duration_since(self.started);
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        span.fixed64(START, nanos(began));
        span.fixed64(END, nanos(ended));
    }

    /// `http.request.method`, and what the client sent if that is not known.
    fn method(&self, span: &mut Message) {
        let (method, other) = known_method(&self.record.method);
        self.text(span, "http.request.method", if other { "_OTHER" } else { method });
        if other {
            self.text(span, "http.request.method_original", self.record.method.as_str());
        }
    }

    /// The address of a server, and its port if that is known.
    fn server(&self, span: &mut Message, authority: Option<&str>) {
        let Some((address, port)) = authority.map(address_and_port) else { return };
        self.text(span, "server.address", address);
        if let Some(port) = port {
            attribute(span, ATTRIBUTES, "server.port", Value::Integer(port.into()));
        }
    }

    /// The span has failed with an error, or with a status from `first_error` on.
    fn status(&self, span: &mut Message, status: u16, error: Option<&'static str>, first_error: u16) {
        if status > 0 {
            attribute(span, ATTRIBUTES, "http.response.status_code", Value::Integer(status.into()));
        }
        let has_failed = status >= first_error || error.is_some();
        let kind = error.map(Cow::Borrowed).or(has_failed.then(|| Cow::Owned(status.to_string())));
        self.optional(span, "error.type", kind.as_deref());
        if has_failed {
            span.message(STATUS, |message| message.number(CODE, ERROR));
        }
    }

    fn text(&self, span: &mut Message, key: &str, value: &str) {
        attribute(span, ATTRIBUTES, key, Value::Text(&cut(value, self.max_field)));
    }

    fn optional(&self, span: &mut Message, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(span, key, value);
        }
    }
}

/// The name of a known method, or `HTTP` and true for any other: a client can make up as many as it likes.
fn known_method(method: &Method) -> (&str, bool) {
    match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE => (method.as_str(), false),
        Method::CONNECT | Method::OPTIONS | Method::TRACE | Method::PATCH => (method.as_str(), false),
        _ => ("HTTP", true),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

/// Without the brackets of an IPv6 address.
fn address_and_port(authority: &str) -> (&str, Option<u16>) {
    let with_port = authority.rsplit_once(':').and_then(|(host, port)| Some((host, Some(port.parse().ok()?))));
    let (host, port) = match with_port {
        Some(with_port) if !authority.ends_with(']') => with_port,
        _ => (authority, None),
    };
    (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_an_address_and_a_port() {
        for (authority, expected) in [
            ("a.example:8443", ("a.example", Some(8443))),
            ("a.example", ("a.example", None)),
            ("[2001:db8::1]:80", ("2001:db8::1", Some(80))),
            ("[2001:db8::1]", ("2001:db8::1", None)),
            ("a.example:x", ("a.example:x", None)),
            ("", ("", None)),
        ] {
            assert_eq!(address_and_port(authority), expected, "{authority}");
        }
    }

    #[test]
    fn a_time_is_precise_unless_the_clock_was_set() {
        let time = UnixTime::from_millis(5_000);
        let ms = Duration::from_millis;
        let at = |now: Duration, elapsed| precise(time, SystemTime::UNIX_EPOCH + now, elapsed);
        let rest = Duration::from_nanos(123_456);
        assert_eq!(at(ms(5_007) + rest, ms(7)), ms(5_000) + rest);
        assert_eq!(at(ms(4_000), ms(7)), ms(5_000), "set back");
        assert_eq!(at(ms(9_000), ms(7)), ms(5_000) + Duration::from_nanos(999_999), "set forward");
    }

    #[test]
    fn methods_of_clients_make_no_names() {
        let other = Method::from_bytes(b"INVENTED").expect("a token");
        assert_eq!((known_method(&Method::PATCH), known_method(&other)), (("PATCH", false), ("HTTP", true)));
    }
}

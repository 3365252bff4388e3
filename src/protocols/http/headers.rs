//! Header hygiene: which fields are removed from requests and responses, and which are set. Pure.
//!
//! The order matters: the gateway first removes the fields that `Connection` nominates and those that a client must not
//! set, then sets its own.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::protocols::http::field_list;
use crate::protocols::http::forwarded::ForwardedClient;
use crate::protocols::http::removed_fields::{FieldRules, Removal, RemovedFields};
use crate::protocols::http::trace_context::{TRACEPARENT, TRACESTATE};

/// The reason for which a route that does not enforce would have rejected the request.
pub const OBSERVED: &str = "x-auth-observed";

/// Fields about the client of a request, which the gateway sets: it is the client's peer.
pub static ORIGIN: [HeaderName; 5] =
    [header::FORWARDED, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_REQUEST_ID];

/// A CGI program gets it as `HTTP_PROXY` and may use it as the proxy for its own requests (httpoxy, CVE-2016-5385). It
/// has no meaning in a request.
const PROXY: &str = "proxy";

/// A backend may take the method from these fields, instead of the one that the route was matched by.
pub static METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

// Constants, because `from_static` does a lookup each time it runs.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Set on routes with `strip_prefix`.
pub static X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Set with `forwarding.x_real_ip = true`.
pub static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Returns true if a field contains the name of a method that returns the request.
pub fn names_trace(value: &HeaderValue) -> bool {
    let is = |bytes: &[u8]| bytes.eq_ignore_ascii_case(b"trace") || bytes.eq_ignore_ascii_case(b"track");
    value.as_bytes().windows(5).any(is)
}

/// Fields for one connection only (RFC 9110 section 7.6.1). `TE` and `Trailer` have rules of their own.
static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Fields that `Connection` must not nominate: without them the request would have another meaning.
static NEVER_NOMINATED: [HeaderName; 6] =
    [header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION, header::COOKIE, header::TE, header::TRAILER];

/// Removes fields from requests. Built once from the configuration.
pub struct Hygiene {
    removed: RemovedFields,
}

impl Hygiene {
    /// `identity`: the further fields that only the gateway sets. All are removed in every spelling.
    pub fn new<'n>(identity: impl Iterator<Item = &'n HeaderName>, rules: &FieldRules) -> Self {
        let own = identity.map(HeaderName::as_str).chain(own_fields());
        let overrides = METHOD_OVERRIDES.iter().map(HeaderName::as_str);
        Hygiene { removed: RemovedFields::new(own, overrides, rules) }
    }

    /// Removes fields that are hop-by-hop, that `Connection` nominates, or that only the gateway sets. One pass over
    /// the names; a request without such fields is not changed.
    pub fn clean_request(&self, headers: &mut HeaderMap) {
        let mut removed = Vec::new();
        let mut has_te = false;
        for name in headers.keys() {
            has_te |= *name == header::TE;
            if self.removes(name, headers) {
                removed.push(name.clone());
            }
        }
        // `Connection` is one of those that are removed.
        if !removed.is_empty() {
            remove_nominated(headers);
        }
        for name in removed {
            headers.remove(name);
        }
        if has_te {
            reduce_te(headers);
        }
    }

    /// Returns true if the client must not send this field with its values.
    fn removes(&self, name: &HeaderName, fields: &HeaderMap) -> bool {
        match self.removed.removal(name) {
            None => false,
            Some(Removal::Always) => true,
            Some(Removal::IfTrace) => fields.get_all(name).iter().any(names_trace),
        }
    }

    /// Removes the same fields from trailers, because some backends merge trailers into the headers.
    pub fn clean_trailers(&self, trailers: &mut HeaderMap) {
        let must_remove = |name: &&HeaderName| {
            let is_trace = [TRACEPARENT, TRACESTATE].contains(name);
            is_trace || self.removes(name, trailers) || NEVER_NOMINATED.contains(name)
        };
        let removed: Vec<HeaderName> = trailers.keys().filter(must_remove).cloned().collect();
        for name in removed {
            trailers.remove(name);
        }
    }
}

/// The fields that the gateway sets itself or never forwards, so that `forwarding.keep` cannot keep them.
pub fn own_fields<'n>() -> impl Iterator<Item = &'n str> {
    HOP_BY_HOP.iter().chain(&ORIGIN).map(HeaderName::as_str).chain([OBSERVED, PROXY])
}

/// The fields for one connection only.
pub fn hop_by_hop() -> impl Iterator<Item = &'static HeaderName> {
    HOP_BY_HOP.iter()
}

/// The fields without which a request has another meaning, so that `forwarding.remove` must not remove them.
pub fn essential_fields() -> impl Iterator<Item = &'static str> {
    let of_content = ["content-type", "content-encoding", "expect"];
    NEVER_NOMINATED.iter().chain(&HOP_BY_HOP).map(HeaderName::as_str).chain(of_content)
}

/// How many fields the gateway usually adds to a request: up to five about its client, four about its caller, and its
/// id. Claims come on top.
const ADDED_FIELDS: usize = 10;

/// Sets the fields about the client. To be called after [`Hygiene::clean_request`], because `Connection` could
/// nominate them.
pub fn set_forwarded(headers: &mut HeaderMap, client: &ForwardedClient, host: Option<&HeaderValue>) {
    // Reserved at once: otherwise the map would grow twice and move all fields each time.
    headers.reserve(ADDED_FIELDS);
    headers.insert(X_FORWARDED_FOR, client.forwarded_for.clone());
    headers.insert(X_FORWARDED_PROTO, client.scheme.clone());
    headers.insert(header::FORWARDED, client.forwarded.clone());
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
}

/// `forwarding.x_real_ip`: the same address, under the name that backends behind nginx read.
pub fn set_real_ip(headers: &mut HeaderMap, client: &ForwardedClient) {
    headers.insert(X_REAL_IP.clone(), client.forwarded_for.clone());
}

/// Which of the fields that few requests have are there. One pass over the names costs less than a search for each.
#[derive(Clone, Copy, Default)]
pub struct RareFields {
    pub cookie: bool,
    pub expect: bool,
    pub trace: bool,
}

impl RareFields {
    pub fn of(headers: &HeaderMap) -> Self {
        let mut found = RareFields::default();
        for name in headers.keys() {
            match *name {
                header::COOKIE => found.cookie = true,
                header::EXPECT => found.expect = true,
                _ => found.trace |= matches!(name.as_str(), "traceparent" | "tracestate"),
            }
        }
        found
    }
}

/// Joins several `Cookie` fields, as HTTP/2 clients send them, into one (RFC 9113 section 8.2.3). A backend would read
/// only the first one, or join them with a comma.
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut values = headers.get_all(header::COOKIE).iter();
    if values.next().is_none() || values.next().is_none() {
        return;
    }
    let values: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // A separator between valid values keeps them valid.
    if let Ok(joined) = HeaderValue::from_bytes(&values.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Returns true if the end of the body is clear: one Content-Length, or `chunked` as the only transfer coding, or
/// neither. hyper decodes `chunked` whatever is before or beside it. A body of `gzip, chunked` would go on compressed
/// without a field that says so, and a client would end the body by a Content-Length beside `chunked` (RFC 9112 section
/// 6.3).
pub fn has_unambiguous_length(headers: &HeaderMap) -> bool {
    let mut found = 0;
    for (name, value) in headers {
        let is_valid = match *name {
            header::TRANSFER_ENCODING => value.as_bytes().eq_ignore_ascii_case(b"chunked"),
            header::CONTENT_LENGTH => value.as_bytes().iter().all(u8::is_ascii_digit),
            _ => continue,
        };
        found += 1;
        if !is_valid || found > 1 {
            return false;
        }
    }
    true
}

/// Returns true if there are more than `limit` fields. Over HTTP/1.1 they were counted as they arrived; over HTTP/2,
/// hyper limits only their bytes. An HTTP/2 client may send each cookie in a field of its own (RFC 9113 section 8.2.3):
/// they count as one.
pub fn exceeds_count(headers: &HeaderMap, limit: usize) -> bool {
    headers.len() > limit && headers.len() - headers.get_all(header::COOKIE).iter().skip(1).count() > limit
}

/// Removes the fields for the connection to the backend.
pub fn clean_response(headers: &mut HeaderMap) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    if !removed.is_empty() {
        remove_nominated(headers);
    }
    for name in removed {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    // Checked for every field of every response. Hardly any field has one of these lengths.
    matches!(name.as_str().len(), 7 | 10 | 14 | 16..=19) && HOP_BY_HOP.contains(name)
}

/// Removes the fields that `Connection` nominates. The caller removes `Connection` itself.
fn remove_nominated(headers: &mut HeaderMap) {
    let mut connection = headers.get_all(header::CONNECTION).iter();
    let Some(first) = connection.next() else { return };
    if connection.next().is_some() || !nominates_nothing(first) {
        let nominated: Vec<HeaderName> = field_list::items(headers, &header::CONNECTION)
            .filter_map(|name| str::from_utf8(name).ok())
            .filter(|name| headers.contains_key(*name))
            .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
            .filter(|name| !NEVER_NOMINATED.contains(name))
            .collect();
        for name in nominated {
            headers.remove(name);
        }
    }
}

/// Returns true for the values that browsers and backends nearly always send. `Keep-Alive` is removed in any case, and
/// no field is named `Close` (RFC 9110 section 7.6.1).
fn nominates_nothing(connection: &HeaderValue) -> bool {
    connection.as_bytes().eq_ignore_ascii_case(b"keep-alive") || connection.as_bytes().eq_ignore_ascii_case(b"close")
}

/// Keeps `TE: trailers`, which gRPC needs. Other transfer codings are for the connection to the client only.
fn reduce_te(headers: &mut HeaderMap) {
    if field_list::contains(headers, &header::TE, "trailers") {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(header::TE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(sent: &[(&'static str, &'static str)]) -> Vec<String> {
        let identity = [HeaderName::from_static("x-auth-subject")];
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Hygiene::new(identity.iter(), &FieldRules::default()).clean_request(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?"))).collect()
    }

    #[test]
    fn gateway_fields_are_removed_in_every_spelling() {
        for name in [
            "x_auth_observed",
            "x-auth-subject",
            "x_auth_subject",
            "x-auth_subject",
            "x.auth.subject",
            "x-forwarded-for",
            "x_forwarded_proto",
            "x-forwarded-anything",
            "forwarded",
            "x-real-ip",
            "x-original-url",
            "x_original_method",
            "proxy",
            "keep-alive",
            "keep_alive",
            "proxy-connection",
            "proxy_connection",
            "transfer_encoding",
            "upgrade",
        ] {
            assert!(cleaned(&[(name, "forged"), (name, "again")]).is_empty(), "{name}");
        }
        let others =
            ["x-auth-subjects", "x-forwardeds", "x-original", "x-originals", "proxying"].map(|name| (name, "1"));
        assert_eq!(cleaned(&others).len(), others.len(), "other names are kept");
    }

    #[test]
    fn connection_cannot_nominate_essential_fields() {
        let sent = [
            ("connection", "close, X-Own, authorization, host"),
            ("x-own", "1"),
            ("authorization", "Bearer x"),
            ("host", "a"),
        ];
        assert_eq!(cleaned(&sent), ["authorization: Bearer x", "host: a"]);
    }

    #[test]
    fn every_hop_by_hop_name_passes_the_length_check() {
        assert!(HOP_BY_HOP.iter().all(is_hop_by_hop));
        assert!(!is_hop_by_hop(&header::CONTENT_LENGTH) && !is_hop_by_hop(&header::SERVER));
    }

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        fields.iter().for_each(|(name, value)| {
            headers.append(*name, HeaderValue::from_static(value));
        });
        headers
    }

    #[test]
    fn a_body_has_one_length_or_is_chunked() {
        for (fields, is_clear) in [
            (&[][..], true),
            (&[("content-length", "3")], true),
            (&[("transfer-encoding", "Chunked")], true),
            (&[("content-length", "3"), ("transfer-encoding", "chunked")], false),
            (&[("content-length", "3"), ("content-length", "3")], false),
            (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], false),
            (&[("transfer-encoding", "gzip, chunked")], false),
            (&[("transfer-encoding", "gzip")], false),
            (&[("content-length", "3, 3")], false),
            (&[("content-length", "+3")], false),
            (&[("content-length", "-3")], false),
        ] {
            assert_eq!(has_unambiguous_length(&map(fields)), is_clear, "{fields:?}");
        }
    }

    #[test]
    fn several_cookie_fields_become_one() {
        for (fields, expected) in [
            (&[][..], &[][..]),
            (&[("cookie", "a=1")], &["a=1"]),
            (&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")], &["a=1; b=2; c=3"]),
        ] {
            let mut headers = map(fields);
            join_cookies(&mut headers);
            let joined = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
            assert!(joined.eq(expected.iter().map(|value| value.as_bytes())), "{headers:?}");
        }
    }

    #[test]
    fn all_cookies_count_as_one_field() {
        let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3"), ("x", "1"), ("y", "2")];
        assert!(!exceeds_count(&map(&cookies), 5) && !exceeds_count(&map(&cookies), 3));
        assert!(exceeds_count(&map(&cookies), 2));
        assert!(exceeds_count(&map(&[("x", "1"), ("x", "2"), ("y", "3")]), 2), "other repeated fields count");
    }

    #[test]
    fn a_response_loses_what_is_for_its_connection() {
        for (connection, is_left) in [("Keep-Alive", true), ("CLOSE", true), ("close, x-own", false), ("x-own", false)]
        {
            let mut headers = map(&[("connection", connection), ("x-own", "1"), ("keep-alive", "timeout=5")]);
            clean_response(&mut headers);
            assert_eq!(headers, map(if is_left { &[("x-own", "1")] } else { &[] }), "{connection}");
        }
    }

    #[test]
    fn only_trailers_is_kept_of_te() {
        assert_eq!(cleaned(&[("te", "gzip, Trailers;q=1, trailers")]), ["te: trailers"]);
        assert!(cleaned(&[("te", "gzip")]).is_empty());
    }
}

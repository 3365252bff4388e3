//! Header hygiene: what is removed on the way in and out, and what is set. Pure.
//!
//! The order is part of the defence: first goes whatever the client nominated or may not say, then ours is set. Names are
//! compared as a careless backend would read them: CGI turns dash, underscore and dot alike into `_`, so `X_Auth-Subject`
//! would become the same variable as `X-Auth-Subject` (Caddy GHSA-f59h-q822-g45g).

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::protocols::http::field_list;

/// Tells the upstream what a request would have been refused for, on a route that does not enforce that.
pub const OBSERVED: &str = "x-auth-observed";

/// Headers about where a request came from. Only what stands next to the client can say; here that is the gateway.
const FORWARDING: &[&str] = &["forwarded", "x-real-ip", "x-rewrite-url", "x-request-id"];
/// Whole families of them: a list of members is never complete (Traefik CVE-2024-52003, CVE-2026-35051).
const FORWARDING_FAMILIES: [&[u8]; 2] = [b"x-forwarded-", b"x-original-"];

/// A CGI program finds it as `HTTP_PROXY`, and takes that for its operator's word on where to send what it asks of others
/// (httpoxy, CVE-2016-5385). It means nothing in a request.
const PROXY: &str = "proxy";

/// By these a backend may take a request for one of another method than the one that routes were matched by.
pub static METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

// Constants, as `from_static` looks a name up each time that it runs.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Fields that concern one connection only (RFC 9110 section 7.6.1). `TE` and `Trailer` have rules of their own.
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

/// What `Connection` must not nominate: removing it would change what the request means.
static NEVER_NOMINATED: [HeaderName; 6] =
    [header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION, header::COOKIE, header::TE, header::TRAILER];

/// Cleans requests. Built once from the configuration.
pub struct Hygiene {
    /// Names that must go beside those of [`FORWARDING`], folded.
    folded: Vec<Vec<u8>>,
    /// Does a name that must go begin with this byte, folded? Most names do not, and need no further look.
    beginnings: [bool; 256],
}

/// Where requests come from, as upstreams are told it.
pub struct Origin {
    /// Of the client: the peer, or whom a trusted one speaks for.
    pub address: std::net::IpAddr,
    pub forwarded_for: HeaderValue,
    pub forwarded: HeaderValue,
    pub scheme: HeaderValue,
}

impl Origin {
    pub fn new(address: std::net::IpAddr, tls: bool) -> Self {
        let scheme = if tls { "https" } else { "http" };
        // An IPv6 client on a dual-stack socket is an IPv4 one to everybody who reads the header.
        let address = address.to_canonical();
        let node = if address.is_ipv6() { format!("\"[{address}]\"") } else { address.to_string() };
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("unknown"));
        Origin {
            address,
            forwarded_for: value(address.to_string()),
            forwarded: value(format!("for={node};proto={scheme}")),
            scheme: HeaderValue::from_static(scheme),
        }
    }
}

impl Hygiene {
    /// Removes `identity`, the names that only the gateway may set, in every spelling.
    pub fn new<'n>(identity: impl Iterator<Item = &'n HeaderName>) -> Self {
        let names = identity.map(HeaderName::as_str).chain([OBSERVED, PROXY]);
        let folded: Vec<Vec<u8>> = names.map(fold).collect();
        let fixed = HOP_BY_HOP.iter().map(HeaderName::as_str).chain(FORWARDING.iter().copied()).map(str::as_bytes);
        let mut beginnings = [false; 256];
        for first in fixed.chain(FORWARDING_FAMILIES).chain(folded.iter().map(Vec::as_slice)).flat_map(<[u8]>::first) {
            beginnings[usize::from(*first)] = true;
        }
        Hygiene { folded, beginnings }
    }

    /// Removes these from requests as well.
    pub fn and<'n>(mut self, names: impl Iterator<Item = &'n HeaderName>) -> Self {
        for name in names.map(|name| fold(name.as_str())) {
            if let Some(first) = name.first() {
                self.beginnings[usize::from(*first)] = true;
            }
            self.folded.push(name);
        }
        self
    }

    /// Removes what is hop-by-hop, nominated by `Connection`, or the gateway's to say. One pass over the names; requests
    /// without such fields are left untouched.
    pub fn clean_request(&self, headers: &mut HeaderMap) {
        remove_nominated(headers);
        let condemned: Vec<HeaderName> = headers.keys().filter(|name| self.must_go(name)).cloned().collect();
        for name in condemned {
            headers.remove(name);
        }
        if headers.contains_key(header::TE) {
            reduce_te(headers);
        }
    }

    /// Trailers may not say what headers may not: there are backends that put them among the headers.
    pub fn clean_trailers(&self, trailers: &mut HeaderMap) {
        let condemned = |name: &&HeaderName| self.must_go(name) || NEVER_NOMINATED.contains(name);
        let condemned: Vec<HeaderName> = trailers.keys().filter(condemned).cloned().collect();
        for name in condemned {
            trailers.remove(name);
        }
    }

    fn must_go(&self, name: &HeaderName) -> bool {
        let first = name.as_str().as_bytes().first();
        let begins_like_one = first.is_some_and(|first| self.beginnings[usize::from(folded(*first))]);
        begins_like_one && (is_hop_by_hop(name) || self.is_ours(name))
    }

    /// Is this name, however spelled, one that only the gateway may set, or nobody?
    fn is_ours(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        let is_of = |family: &[u8]| name.len() > family.len() && folds_to(&name[..family.len()], family);
        FORWARDING_FAMILIES.into_iter().any(is_of)
            || FORWARDING.iter().any(|ours| folds_to(name, ours.as_bytes()))
            || self.folded.iter().any(|ours| folds_to(name, ours))
    }
}

/// Fields that the gateway usually adds to a request: four about its origin, four about its caller, and its id. Claims come on
/// top.
const USUALLY_SET: usize = 9;

/// Says where the request came from. After [`Hygiene::clean_request`], never before: `Connection` could nominate it.
pub fn set_origin(headers: &mut HeaderMap, origin: &Origin, host: Option<&HeaderValue>) {
    // At once for all that follows, or the map would grow twice, moving everything each time.
    headers.reserve(USUALLY_SET);
    headers.insert(X_FORWARDED_FOR, origin.forwarded_for.clone());
    headers.insert(X_FORWARDED_PROTO, origin.scheme.clone());
    headers.insert(header::FORWARDED, origin.forwarded.clone());
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
}

/// Several `Cookie` fields, as HTTP/2 clients send them, become the one that HTTP/1 knows (RFC 9113 section 8.2.3): a backend
/// would read the first alone, or join them with a comma.
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut values = headers.get_all(header::COOKIE).iter();
    if values.next().is_none() || values.next().is_none() {
        return;
    }
    let values: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // What stands between valid values keeps them valid.
    if let Ok(joined) = HeaderValue::from_bytes(&values.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Does the body end in one way: by one length, or chunked and nothing else? hyper decodes `chunked`, whatever stands before or
/// beside it: what it hands over from `gzip, chunked` is compressed, and nobody would say so any more; and a length beside it
/// goes on, to a client who counts by that and takes a part for the whole (RFC 9112 section 6.3).
pub fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let (coding, length) = (codings.next(), lengths.next());
    let plain = coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        && length.is_none_or(|length| length.as_bytes().iter().all(u8::is_ascii_digit));
    plain && (coding.is_none() || length.is_none()) && codings.next().is_none() && lengths.next().is_none()
}

/// Are there more than `limits.request_header_count`? Of HTTP/1 they were counted as they came; HTTP/2 bounds their bytes alone. It may bring
/// each cookie in a field of its own (RFC 9113 section 8.2.3): together they are one.
pub fn are_too_many(headers: &HeaderMap, limit: usize) -> bool {
    headers.len() > limit && headers.len() - headers.get_all(header::COOKIE).iter().skip(1).count() > limit
}

/// Removes what concerned the connection to the upstream only.
pub fn clean_response(headers: &mut HeaderMap) {
    remove_nominated(headers);
    if headers.keys().any(is_hop_by_hop) {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    // Asked of every field of every answer, and hardly any has one of these lengths.
    matches!(name.as_str().len(), 7 | 10 | 14 | 16..=19) && HOP_BY_HOP.contains(name)
}

/// Removes `Connection`, and the fields that it nominates.
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
    headers.remove(header::CONNECTION);
}

/// What browsers and backends say nearly always. `Keep-Alive` goes in any case, and no field is called `Close` (RFC 9110
/// section 7.6.1).
fn nominates_nothing(connection: &HeaderValue) -> bool {
    connection.as_bytes().eq_ignore_ascii_case(b"keep-alive") || connection.as_bytes().eq_ignore_ascii_case(b"close")
}

/// `TE: trailers` goes on, as gRPC needs it; any other transfer coding is between the client and us.
fn reduce_te(headers: &mut HeaderMap) {
    if field_list::has(headers, &header::TE, "trailers") {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(header::TE);
    }
}

fn fold(name: &str) -> Vec<u8> {
    name.bytes().map(folded).collect()
}

fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// `ours` is folded already.
fn folds_to(name: &[u8], ours: &[u8]) -> bool {
    name.len() == ours.len() && name.iter().zip(ours).all(|(theirs, ours)| folded(*theirs) == *ours)
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
        Hygiene::new(identity.iter()).clean_request(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?"))).collect()
    }

    #[test]
    fn what_is_the_gateways_to_say_goes_in_every_spelling() {
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
            "proxy-connection",
            "upgrade",
        ] {
            assert!(cleaned(&[(name, "forged"), (name, "again")]).is_empty(), "{name}");
        }
        let others = [
            ("x-auth-subjects", "1"),
            ("x-forwarded", "2"),
            ("x-original", "3"),
            ("x-originals", "4"),
            ("proxying", "5"),
        ];
        assert_eq!(cleaned(&others).len(), others.len(), "other names stay");
    }

    #[test]
    fn connection_nominates_but_not_what_carries_meaning() {
        let sent = [
            ("connection", "close, X-Own, authorization, host"),
            ("x-own", "1"),
            ("authorization", "Bearer x"),
            ("host", "a"),
        ];
        assert_eq!(cleaned(&sent), ["authorization: Bearer x", "host: a"]);
    }

    #[test]
    fn every_hop_by_hop_name_is_known_as_one() {
        assert!(HOP_BY_HOP.iter().all(is_hop_by_hop));
        assert!(!is_hop_by_hop(&header::CONTENT_LENGTH) && !is_hop_by_hop(&header::SERVER));
    }

    #[test]
    fn of_te_only_trailers_goes_on() {
        assert_eq!(cleaned(&[("te", "gzip, Trailers;q=1, trailers")]), ["te: trailers"]);
        assert!(cleaned(&[("te", "gzip")]).is_empty());
    }
}

//! The target of a request: its host, and its path in the form that backends expect. Pure.

use std::net::Ipv6Addr;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header};

use crate::types::reject::{Reason, Reject};

/// Returns the host of a request. Rejects targets that a gateway does not serve.
///
/// The host is in `:authority` (HTTP/2), in an absolute-form target, or in `Host`. If it is in two of them, both must
/// be equal, because a backend may use the other one.
pub fn host<B>(request: &Request<B>, uri_size: usize) -> Result<HeaderValue, Reject> {
    if *request.method() == Method::CONNECT {
        return Err(Reason::ConnectNotAllowed.into());
    }
    // RFC 9113 section 8.3.1: `:path` begins with a slash. The http crate would add a missing one.
    let begins_with_query = request.uri().path_and_query().is_some_and(|target| target.as_str().starts_with('?'));
    if request.version() == Version::HTTP_2 && begins_with_query {
        return Err(Reject::new(Reason::BadPath, ":path does not begin with a slash"));
    }
    // Other schemes are not for an HTTP server. A missing scheme (`://`) is one of them.
    if request.uri().scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(Reject::new(Reason::BadHost, "the scheme of the request target is neither http nor https"));
    }
    let field = host_field(request.headers())?;
    let host = match (request.uri().authority(), field) {
        (None, Some(field)) => field.clone(),
        (Some(authority), field) => {
            if field.is_some_and(|field| !field.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())) {
                return Err(Reject::new(Reason::BadHost, "Host is not the host of the request target"));
            }
            HeaderValue::from_str(authority.as_str()).map_err(|_| Reason::BadHost)?
        }
        (None, None) => return Err(Reject::new(Reason::BadHost, "the Host header is missing")),
    };
    if !is_host(host.as_bytes()) {
        return Err(Reject::new(Reason::BadHost, "Host is not a name or address with an optional port"));
    }
    // After the host: a request with a bad host ends its connection, whatever else is wrong with it.
    let uri_len = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if uri_len > uri_size {
        return Err(Reject::new(Reason::UriTooLong, format!("{uri_len} bytes, maximum {uri_size}")));
    }
    Ok(host)
}

fn host_field(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Reject> {
    let mut values = headers.get_all(header::HOST).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Reject::new(Reason::BadHost, "the Host header is repeated"));
    }
    Ok(first)
}

/// Returns true for a name or an address with an optional port. Other characters, as `@`, `/`, `,`, space or a second
/// colon, are read in different ways by different programs. So are empty labels: a program that removes one final dot
/// of `a..` has another name than one that removes all of them.
pub fn is_host(host: &[u8]) -> bool {
    let is_address = |text: &[u8]| std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    let (is_valid_name, rest) = match host.strip_prefix(b"[") {
        Some(host) => {
            let end = host.iter().position(|byte| *byte == b']').unwrap_or(0);
            (is_address(&host[..end]), &host[(end + 1).min(host.len())..])
        }
        None => {
            let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
            (is_name(&host[..end]), &host[end..])
        }
    };
    is_valid_name
        && match rest {
            [] => true,
            [b':', port @ ..] => is_port(port),
            _ => false,
        }
}

/// Returns true for labels between dots. One final dot may follow.
fn is_name(name: &[u8]) -> bool {
    let in_label = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let labels = name.strip_suffix(b".").unwrap_or(name);
    let is_label = |label: &[u8]| !label.is_empty() && label.iter().all(in_label);
    name.len() <= 255 && labels.split(|byte| *byte == b'.').all(is_label)
}

fn is_port(port: &[u8]) -> bool {
    port.len() <= 5
        && port.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(port).is_ok_and(|digits| digits.parse::<u16>().is_ok())
}

/// The name or address without the port, the brackets of an IPv6 address and the final dot of a name: routes are
/// matched against it.
pub fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => {
            let name = host.split_once(':').map_or(host, |(name, _)| name);
            name.strip_suffix('.').unwrap_or(name)
        }
    }
}

/// The path and query only, as HTTP/1.1 sends them.
pub fn origin_form(uri: &Uri) -> Uri {
    match uri.path_and_query() {
        Some(target) if uri.authority().is_some() => Uri::from(target.clone()),
        Some(_) => uri.clone(),
        None => Uri::from(PathAndQuery::from_static("/")),
    }
}

/// The same target as HTTP/2 sends it: with scheme and authority. An error, never another target: the backend would
/// get a request that no check has seen.
pub fn absolute_form(uri: &Uri, scheme: &Scheme, host: &HeaderValue) -> Result<Uri, Reject> {
    let mut parts = origin_form(uri).into_parts();
    let authority = Authority::try_from(host.as_bytes());
    parts.scheme = Some(scheme.clone());
    parts.authority = Some(authority.map_err(|_| Reject::new(Reason::BadHost, "Host is not an authority"))?);
    Uri::from_parts(parts).map_err(|_| Reject::new(Reason::BadPath, "the target cannot be sent over HTTP/2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(target: &str, hosts: &[&str]) -> Result<String, Reason> {
        let mut request = Request::get(target);
        for host in hosts {
            request = request.header("host", *host);
        }
        let request = request.body(()).expect("a request");
        let host = host(&request, 64).map_err(|reject| reject.reason)?;
        Ok(host.to_str().expect("a host is ASCII").to_owned())
    }

    #[test]
    fn a_request_has_exactly_one_host() {
        assert_eq!(found("/", &["a.example:8443"]), Ok("a.example:8443".into()));
        assert_eq!(found("/", &["[::1]:80"]), Ok("[::1]:80".into()));
        assert_eq!(found("/", &["a_b.example.:65535"]), Ok("a_b.example.:65535".into()));
        assert_eq!(found("http://a.example/", &[]), Ok("a.example".into()));
        assert_eq!(found("http://a.example/", &["A.example"]), Ok("a.example".into()));
        for hosts in [
            &[][..],
            &["a", "a"],
            &["a", "b"],
            &[""],
            &["a b"],
            &["a,b"],
            &["u@a"],
            &["a/b"],
            &["a?"],
            &["a#"],
            &["a\\b"],
            &["a:"],
            &["a:b"],
            &["a:1:2"],
            &["a:123456"],
            &["a:65536"],
            &["a:00001x"],
            &["a.."],
            &["a..:1"],
            &["a..b"],
            &[".a"],
            &["."],
            &[".."],
            &[":1"],
            &["[]"],
            &["[a]"],
            &["[1.2.3.4]"],
            &["[::1%25lo]"],
            &["[::1"],
            &["[::1]x"],
            &["[a.b]c]"],
            &["::1"],
        ] {
            assert_eq!(found("/", hosts), Err(Reason::BadHost), "{hosts:?}");
        }
        assert_eq!(found("http://a.example/", &["b.example"]), Err(Reason::BadHost));
        assert_eq!(found("HTTPS://a.example/", &["a.example"]), Ok("a.example".into()));
        for target in ["ftp://a.example/", "://a.example/"] {
            assert_eq!(found(target, &["a.example"]), Err(Reason::BadHost), "{target}");
        }
        assert_eq!(found(&format!("/{}", "a".repeat(64)), &["a"]), Err(Reason::UriTooLong));
    }

    #[test]
    fn only_over_http2_a_path_must_have_its_slash() {
        for (version, expected) in [(Version::HTTP_2, Err(Reason::BadPath)), (Version::HTTP_11, Ok("a.example".into()))]
        {
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(Scheme::HTTP);
            parts.authority = Some(Authority::from_static("a.example"));
            parts.path_and_query = Some(PathAndQuery::from_static("?x"));
            let uri = Uri::from_parts(parts).expect("a target");
            let request = Request::get(uri).version(version).body(()).expect("a request");
            let found = host(&request, 64).map_err(|reject| reject.reason);
            assert_eq!(found.map(|host| host.to_str().expect("ASCII").to_owned()), expected, "{version:?}");
        }
    }

    #[test]
    fn a_target_may_be_as_long_as_the_limit() {
        assert_eq!(found(&format!("/{}", "a".repeat(63)), &["a"]), Ok("a".into()));
        assert_eq!(found(&format!("/{}", "a".repeat(64)), &["a"]), Err(Reason::UriTooLong));
    }

    #[test]
    fn a_target_loses_its_authority() {
        for (target, form) in
            [("http://a.example/b?c", "/b?c"), ("/b?c", "/b?c"), ("*", "*"), ("http://a.example", "/")]
        {
            let uri: Uri = target.parse().expect("a target");
            assert_eq!(origin_form(&uri).to_string(), form, "{target}");
        }
    }

    #[test]
    fn a_target_is_rebuilt_whole_or_rejected() {
        let rebuilt = |target: &str, host: &'static str| {
            let uri: Uri = target.parse().expect("a target");
            let absolute = absolute_form(&uri, &Scheme::HTTP, &HeaderValue::from_static(host));
            absolute.map(|uri| uri.to_string()).map_err(|reject| reject.reason)
        };
        assert_eq!(rebuilt("/a?b=c", "x.example:1"), Ok("http://x.example:1/a?b=c".into()));
        assert_eq!(rebuilt("https://y.example/a", "x.example"), Ok("http://x.example/a".into()));
        for host in ["", "a b", "a/b", "[::1"] {
            assert_eq!(rebuilt("/a", host), Err(Reason::BadHost), "{host:?}");
        }
    }

    #[test]
    fn a_port_is_not_part_of_the_name() {
        for (host, name) in [("a:1", "a"), ("a", "a"), ("a.", "a"), ("a.:1", "a"), ("[::1]:1", "::1"), ("[::1]", "::1")]
        {
            assert_eq!(without_port(host), name);
        }
    }
}

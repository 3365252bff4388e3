//! Requests that a page of somebody else made: the browser adds cookies to them by itself. Pure.
//!
//! A token from a cookie therefore counts for a request that changes something, or opens a WebSocket, only if `Origin` says
//! that the page is one of ours. Every browser sends it with such requests; a program that does not can use a header. A
//! captured logout changes something whatever its method: for an image on any page, a browser sends a GET.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::types::reject::{Reason, Reject};

/// What the request is and where it arrived.
pub struct Target<'r> {
    pub method: &'r Method,
    /// A WebSocket begins with GET, and any page may open one (RFC 6455 section 10.2).
    pub websocket: bool,
    /// `route.logout`: its answer may end the caller's login.
    pub logout: bool,
    pub host: &'r HeaderValue,
    /// `http` or `https`.
    pub scheme: &'r HeaderValue,
}

/// Refuses a request that another site may have caused. `origins`: those that are trusted besides the request's own.
pub fn check(headers: &HeaderMap, target: &Target<'_>, origins: &[String]) -> Result<(), Reject> {
    let safe = matches!(*target.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
    if safe && !target.websocket && !target.logout {
        return Ok(());
    }
    let mut values = headers.get_all(header::ORIGIN).iter();
    let refuse = |detail: &'static str| Err(Reject::new(Reason::Csrf, detail));
    let Some(origin) = values.next() else { return refuse("a token in a cookie, and no Origin") };
    if values.next().is_some() {
        return refuse("several Origin headers");
    }
    let origin = origin.to_str().unwrap_or_default();
    if origins.iter().any(|trusted| trusted == origin) || is_own(origin, target) {
        return Ok(());
    }
    refuse("the Origin is neither this host nor one of the route's origins")
}

/// The same host and port. A page that came in cleartext is no friend of one that came encrypted: anybody on the way may
/// have written it.
fn is_own(origin: &str, target: &Target<'_>) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    if scheme != "https" && target.scheme != scheme {
        return false;
    }
    let default = if scheme == "https" { "443" } else { "80" };
    let host = target.host.to_str().unwrap_or_default();
    let (ours, theirs) = (split_port(host, default), split_port(authority, default));
    ours.0.eq_ignore_ascii_case(theirs.0) && ours.1 == theirs.1
}

fn split_port<'h>(authority: &'h str, default: &'h str) -> (&'h str, &'h str) {
    match authority.rsplit_once(':') {
        // An IPv6 address without a port ends in a bracket.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: Method, websocket: bool, scheme: &'static str, origins: &[&'static str]) -> bool {
        at(false, method, websocket, scheme, origins)
    }

    fn at(logout: bool, method: Method, websocket: bool, scheme: &'static str, origins: &[&'static str]) -> bool {
        let headers = origins.iter().map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))).collect();
        let host = HeaderValue::from_static("app.example");
        let scheme = HeaderValue::from_static(scheme);
        let target = Target { method: &method, websocket, logout, host: &host, scheme: &scheme };
        check(&headers, &target, &["https://friend.example".into()]).is_ok()
    }

    #[test]
    fn what_changes_nothing_needs_no_origin_and_a_websocket_does() {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
            assert!(checked(method, false, "https", &["https://evil.example"]));
        }
        assert!(!checked(Method::GET, true, "https", &["https://evil.example"]));
        assert!(!checked(Method::GET, true, "https", &[]));
        assert!(checked(Method::GET, true, "https", &["https://app.example"]));
        for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert!(!checked(method.clone(), false, "https", &[]), "{method}");
            assert!(checked(method, false, "https", &["https://app.example"]));
        }
    }

    #[test]
    fn a_logout_changes_something_whatever_its_method() {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::POST] {
            for (origins, good) in
                [(&[][..], false), (&["https://evil.example"], false), (&["https://app.example"], true)]
            {
                assert_eq!(at(true, method.clone(), false, "https", origins), good, "{method} {origins:?}");
            }
        }
    }

    #[test]
    fn the_origin_is_this_host_or_a_friend() {
        for (scheme, origins, good) in [
            ("https", &["https://app.example"][..], true),
            ("https", &["https://APP.example"], true),
            ("https", &["https://app.example:443"], true),
            ("https", &["https://friend.example"], true),
            ("http", &["http://app.example"], true),
            ("http", &["http://app.example:80"], true),
            // TLS may end at a balancer in front.
            ("http", &["https://app.example"], true),
            ("https", &["http://app.example"], false),
            ("https", &["https://app.example:8443"], false),
            ("https", &["https://app.example.evil.example"], false),
            ("https", &["https://evilapp.example"], false),
            ("https", &["https://evil.example"], false),
            ("https", &["https://sub.app.example"], false),
            ("https", &["http://friend.example"], false),
            ("https", &["https://friend.example/"], false),
            ("https", &["null"], false),
            ("https", &[""], false),
            ("https", &["app.example"], false),
            ("https", &["file://"], false),
            ("https", &["https://app.example", "https://app.example"], false),
            ("https", &["https://app.example, https://app.example"], false),
        ] {
            assert_eq!(checked(Method::POST, false, scheme, origins), good, "{scheme} {origins:?}");
        }
    }
}

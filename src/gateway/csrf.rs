//! Rejects requests that another site may have caused. Pure.
//!
//! A browser adds cookies by itself, also to requests from the pages of other sites. So a token in a cookie is accepted
//! for a request that changes something, or that opens a WebSocket, only if `Origin` names a trusted page. Browsers
//! send `Origin` with all such requests, and other programs can use the Authorization header. A captured logout always
//! counts as a change: an image on any page makes the browser send a GET.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::types::reject::{Reason, Reject};

/// What the request does and where it arrived.
pub struct CsrfRequest<'r> {
    pub method: &'r Method,
    /// A WebSocket begins with GET, and every page may open one (RFC 6455 section 10.2).
    pub websocket: bool,
    /// `route.logout`: the response may end the caller's session.
    pub logout: bool,
    pub host: &'r HeaderValue,
    /// `http` or `https`.
    pub scheme: &'r HeaderValue,
}

/// Rejects a request that another site may have caused. `origins` are trusted besides the request's own host.
pub fn check(headers: &HeaderMap, target: &CsrfRequest<'_>, origins: &[String]) -> Result<(), Reject> {
    if is_safe(target.method) && !target.websocket && !target.logout {
        return Ok(());
    }
    let mut values = headers.get_all(header::ORIGIN).iter();
    let reject = |detail: &'static str| Err(Reject::new(Reason::Csrf, detail));
    let Some(origin) = values.next() else { return reject("a token in a cookie without an Origin header") };
    if values.next().is_some() {
        return reject("several Origin headers");
    }
    let origin = origin.to_str().unwrap_or_default();
    if origins.iter().any(|trusted| trusted == origin) || is_own(origin, target) {
        return Ok(());
    }
    reject("the Origin is neither this host nor one of the route's origins")
}

/// Returns true if a request with this method changes nothing (RFC 9110 section 9.2.1).
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Returns true if the origin has the request's host and port. A page loaded over http is not trusted by a host on
/// https: anyone on the network path may have written it.
fn is_own(origin: &str, target: &CsrfRequest<'_>) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    if scheme != "https" && target.scheme != scheme {
        return false;
    }
    let default = if scheme == "https" { "443" } else { "80" };
    let host = target.host.to_str().unwrap_or_default();
    let ours = split_port(host, default);
    let theirs = split_port(authority, default);
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
        let target = CsrfRequest { method: &method, websocket, logout, host: &host, scheme: &scheme };
        check(&headers, &target, &["https://trusted.example".into()]).is_ok()
    }

    #[test]
    fn safe_methods_need_no_origin_but_websockets_do() {
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
    fn an_ipv6_address_may_have_a_port() {
        for (host, authority, expected) in [
            ("[2001:db8::1]", "[2001:db8::1]", true),
            ("[2001:db8::1]", "[2001:db8::1]:443", true),
            ("[2001:db8::1]:443", "[2001:db8::1]", true),
            ("[2001:db8::1]:8443", "[2001:db8::1]:8443", true),
            ("[2001:db8::1]", "[2001:db8::1]:8443", false),
            ("[2001:db8::1]", "[2001:db8::2]", false),
        ] {
            let host = HeaderValue::from_static(host);
            let scheme = HeaderValue::from_static("https");
            let target =
                CsrfRequest { method: &Method::POST, websocket: false, logout: false, host: &host, scheme: &scheme };
            assert_eq!(is_own(&format!("https://{authority}"), &target), expected, "{host:?} {authority}");
        }
    }

    #[test]
    fn a_logout_needs_an_origin_with_every_method() {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::POST] {
            for (origins, good) in
                [(&[][..], false), (&["https://evil.example"], false), (&["https://app.example"], true)]
            {
                assert_eq!(at(true, method.clone(), false, "https", origins), good, "{method} {origins:?}");
            }
        }
    }

    #[test]
    fn the_origin_must_be_this_host_or_a_trusted_one() {
        for (scheme, origins, good) in [
            ("https", &["https://app.example"][..], true),
            ("https", &["https://APP.example"], true),
            ("https", &["https://app.example:443"], true),
            ("https", &["https://trusted.example"], true),
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
            ("https", &["http://trusted.example"], false),
            ("https", &["https://trusted.example/"], false),
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

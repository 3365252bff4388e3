//! `[https]`: cleartext requests are redirected, and browsers learn to use TLS. Pure.

use std::net::Ipv6Addr;

use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};

use crate::protocols::http::body::Body;
use crate::protocols::http::target::without_port;
use crate::types::reject::{Reason, Reject};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Https {
    /// `None`: cleartext requests are served.
    pub redirect: Option<Redirect>,
    /// `https.hosts`, in lower case.
    pub hosts: Vec<String>,
    /// `Strict-Transport-Security` of responses over TLS (RFC 6797).
    pub hsts: Option<HeaderValue>,
}

/// `https.redirect`
#[derive(Clone, Debug, PartialEq)]
pub struct Redirect {
    pub status: StatusCode,
    pub port: u16,
    /// The names of the gateway, in lower case and without port. An IPv6 address has no brackets here.
    pub hosts: Vec<String>,
}

impl Redirect {
    /// The response to a cleartext request. `host`: that of the request, which a client can forge. Its redirect must
    /// not lead to another site, and a cache must not keep such a one, so only names of the configuration are used.
    pub(super) fn response(&self, host: &str, uri: &Uri) -> Result<Response<Body>, Reject> {
        let host = without_port(host);
        let is_named = |name: &&String| name.eq_ignore_ascii_case(host);
        let Some(name) = self.hosts.iter().find(is_named) else {
            return Err(Reject::new(Reason::CleartextHost, "Host is neither in https.hosts nor that of a route"));
        };
        let name = if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name.clone() };
        let port = if self.port == 443 { String::new() } else { format!(":{}", self.port) };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let location = HeaderValue::from_str(&format!("https://{name}{port}{target}"));
        let location = location.map_err(|_| Reject::new(Reason::BadPath, "the target does not fit into a redirect"))?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::LOCATION, location);
        Ok(response)
    }
}

impl Https {
    /// Replaces the policy of a backend: a host has one. Browsers ignore it without TLS.
    pub(super) fn set_hsts(&self, is_https: bool, headers: &mut HeaderMap) {
        if is_https && let Some(policy) = &self.hsts {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, policy.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(port: u16, host: &str, target: &'static str) -> String {
        let hosts = ["api.example", "192.0.2.1", "2001:db8::1"].map(str::to_owned).to_vec();
        let redirect = Redirect { status: StatusCode::PERMANENT_REDIRECT, port, hosts };
        match redirect.response(host, &Uri::from_static(target)) {
            Ok(response) => response.headers()[header::LOCATION].to_str().expect("text").to_owned(),
            Err(reject) => reject.reason.code().to_owned(),
        }
    }

    #[test]
    fn a_redirect_leads_only_to_names_of_the_gateway() {
        for (port, host, target, expected) in [
            (443, "api.example", "/a?b=c", "https://api.example/a?b=c"),
            (443, "API.Example:80", "/", "https://api.example/"),
            (443, "api.example.", "/", "https://api.example/"),
            (8443, "api.example:8080", "/a", "https://api.example:8443/a"),
            (443, "192.0.2.1", "/a", "https://192.0.2.1/a"),
            (8443, "[2001:db8::1]:80", "/a", "https://[2001:db8::1]:8443/a"),
            (443, "api.example", "//evil.example/", "https://api.example//evil.example/"),
            (443, "api.example", "http://api.example/a?b", "https://api.example/a?b"),
            (443, "evil.example", "/", "cleartext_host"),
            (443, "api.example.evil.example", "/", "cleartext_host"),
            (443, "evil.example:443", "/", "cleartext_host"),
            (443, "", "/", "cleartext_host"),
            (443, "[::1]", "/", "cleartext_host"),
        ] {
            assert_eq!(redirected(port, host, target), expected, "{host} {target}");
        }
    }

    #[test]
    fn only_responses_over_tls_have_the_policy() {
        let https = Https { hsts: Some(HeaderValue::from_static("max-age=1")), ..Https::default() };
        for (https, is_https, expected) in
            [(&https, true, "max-age=1"), (&https, false, "max-age=0"), (&Https::default(), true, "max-age=0")]
        {
            let name = header::STRICT_TRANSPORT_SECURITY;
            let mut headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("max-age=0"))]);
            https.set_hsts(is_https, &mut headers);
            assert_eq!(headers[name], expected);
        }
    }
}

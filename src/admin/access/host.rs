//! The check of `Host` on the admin address.
//!
//! A page of another site can make a browser connect to a loopback address, if the DNS name of that site suddenly means
//! 127.0.0.1 (DNS rebinding). The browser then sends the name of the site, so the gateway serves only its own names.

use std::net::IpAddr;

use http::uri::Authority;
use http::{Request, Version, header};

use crate::protocols::tls::ServerTls;
use crate::types::reject::{Reason, Reject};

/// Accepts an IP address, `localhost`, the names of `admin.hosts` and those of the certificate. A name cannot change
/// the meaning of an IP address.
pub(crate) fn check<B>(request: &Request<B>, hosts: &[String], tls: Option<&ServerTls>) -> Result<(), Reject> {
    let mut fields = request.headers().get_all(header::HOST).iter();
    let field = fields.next();
    let another = fields.next();
    let missing = field.is_none() && request.uri().authority().is_none();
    // Browsers always send a host. Some health checks use HTTP/1.0, which has none.
    if missing && request.version() == Version::HTTP_10 {
        return Ok(());
    }
    let field = field.map(|value| Authority::try_from(value.as_bytes()).map_err(|_| Reason::BadHost)).transpose()?;
    if missing || another.is_some() {
        return Err(Reason::BadHost.into());
    }
    // The URI of a request to a proxy has a host of its own, which takes precedence (RFC 9112 section 3.2.2).
    for authority in field.iter().chain(request.uri().authority()) {
        if !is_own(authority.host(), hosts, tls) {
            return Err(Reason::AdminHost.into());
        }
    }
    Ok(())
}

fn is_own(host: &str, hosts: &[String], tls: Option<&ServerTls>) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    literal.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
        || tls.is_some_and(|tls| tls.names(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(request: http::request::Builder) -> Option<Reason> {
        let request = request.body(()).expect("a request");
        check(&request, &["Gateway.internal".to_owned()], None).err().map(|reject| reject.reason)
    }

    fn get(uri: &str) -> http::request::Builder {
        Request::get(uri)
    }

    #[test]
    fn addresses_and_own_names_are_accepted() {
        for host in
            ["127.0.0.1:9443", "[::1]:9443", "[::1]", "10.1.2.3", "LOCALHOST", "localhost.:1", "gateway.internal"]
        {
            assert_eq!(reason(get("/").header("host", host)), None, "{host}");
        }
        for host in
            ["attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example", "gateway.internal.x"]
        {
            assert_eq!(reason(get("/").header("host", host)), Some(Reason::AdminHost), "{host}");
        }
    }

    #[test]
    fn a_host_must_be_one_valid_name() {
        for host in ["", "a b", "::1", "a@b:c:d"] {
            assert!(reason(get("/").header("host", host)).is_some(), "{host:?}");
        }
        assert_eq!(reason(get("/")), Some(Reason::BadHost));
        assert_eq!(reason(get("/").version(Version::HTTP_10)), None, "a health check");
        let two = get("/").header("host", "localhost").header("host", "attacker.example");
        assert_eq!(reason(two), Some(Reason::BadHost));
        let absolute = get("http://attacker.example/").header("host", "localhost");
        assert_eq!(reason(absolute), Some(Reason::AdminHost));
    }
}

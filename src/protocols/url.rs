//! Where keys are fetched from. Whoever can answer there decides which tokens are genuine, so the way has to be safe: TLS,
//! or no network at all.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use rustls::pki_types::ServerName;

/// `https://host/path?query`; `http://` only to this machine itself, or where that was allowed outright.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUrl {
    pub tls: bool,
    /// A name or an address, an IPv6 one without its brackets.
    pub host: String,
    pub port: u16,
    /// As it stands in a `Host` header.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

/// Why an address is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlFault {
    NotAUrl,
    Credentials,
    Fragment,
    Cleartext,
}

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UrlFault::NotAUrl => "this is not a URL that keys can be fetched from",
            UrlFault::Credentials => "a URL with a user name or password",
            UrlFault::Fragment => "a URL with a fragment",
            UrlFault::Cleartext => "keys would be fetched in cleartext",
        })
    }
}

impl KeyUrl {
    pub fn parse(text: &str, allow_http: bool) -> Result<Self, UrlFault> {
        if text.contains('@') {
            return Err(UrlFault::Credentials);
        }
        if text.contains('#') {
            return Err(UrlFault::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| UrlFault::NotAUrl)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlFault::NotAUrl),
        };
        let authority = uri.authority().ok_or(UrlFault::NotAUrl)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.as_str() == authority.host() {
            true => Some(if tls { 443 } else { 80 }),
            false => authority.port_u16().filter(|port| *port != 0),
        };
        let port = port.ok_or(UrlFault::NotAUrl)?;
        if ServerName::try_from(host.as_str()).is_err() {
            return Err(UrlFault::NotAUrl);
        }
        if !tls && !allow_http && !is_this_machine(&host) {
            return Err(UrlFault::Cleartext);
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(KeyUrl { tls, host, port, authority: authority.as_str().to_owned(), target })
    }

    /// Where an issuer describes itself: by OpenID Connect Discovery, then by RFC 8414, which puts the well-known part
    /// before the issuer's own path.
    pub fn well_known(issuer: &str, allow_http: bool) -> Result<[Self; 2], UrlFault> {
        // A query would end up in the middle of the path. Neither standard allows one.
        if issuer.contains('?') {
            return Err(UrlFault::NotAUrl);
        }
        KeyUrl::parse(issuer, allow_http)?;
        let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
        let authority = issuer.find("://").map_or(0, |scheme| scheme + 3);
        let path = issuer[authority..].find('/').map_or(issuer.len(), |slash| authority + slash);
        let (origin, path) = issuer.split_at(path);
        Ok([
            KeyUrl::parse(&format!("{issuer}/.well-known/openid-configuration"), allow_http)?,
            KeyUrl::parse(&format!("{origin}/.well-known/oauth-authorization-server{path}"), allow_http)?,
        ])
    }
}

impl fmt::Display for KeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

/// What never leaves the machine needs no TLS.
fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_addresses_are_taken() {
        let rows = [
            ("https://login.example/keys?v=2", Ok(("login.example", 443, "/keys?v=2"))),
            ("https://login.example", Ok(("login.example", 443, "/"))),
            ("https://[2001:db8::1]:8443/k", Ok(("2001:db8::1", 8443, "/k"))),
            ("http://127.0.0.1:8080/k", Ok(("127.0.0.1", 8080, "/k"))),
            ("http://[::1]/k", Ok(("::1", 80, "/k"))),
            ("http://LocalHost/k", Ok(("LocalHost", 80, "/k"))),
            ("http://login.example/k", Err(UrlFault::Cleartext)),
            ("http://127.0.0.1.example/k", Err(UrlFault::Cleartext)),
            ("http://localhost.example/k", Err(UrlFault::Cleartext)),
            ("https://me:pw@login.example/k", Err(UrlFault::Credentials)),
            ("https://login.example/k#x", Err(UrlFault::Fragment)),
            ("https://login.example:0/k", Err(UrlFault::NotAUrl)),
            ("https://login.example:99999/k", Err(UrlFault::NotAUrl)),
            ("https://login.example:/k", Err(UrlFault::NotAUrl)),
            ("https://a b/k", Err(UrlFault::NotAUrl)),
            ("https:///k", Err(UrlFault::NotAUrl)),
            ("file:///etc/keys.json", Err(UrlFault::NotAUrl)),
            ("login.example/k", Err(UrlFault::NotAUrl)),
            ("/k", Err(UrlFault::NotAUrl)),
            ("", Err(UrlFault::NotAUrl)),
        ];
        for (text, expected) in rows {
            let parsed = KeyUrl::parse(text, false);
            let shown = parsed.as_ref().map(|url| (url.host.as_str(), url.port, url.target.as_str())).map_err(|f| *f);
            assert_eq!(shown, expected, "{text}");
        }
        assert!(KeyUrl::parse("http://login.example/k", true).is_ok_and(|url| !url.tls));
    }

    #[test]
    fn an_issuer_describes_itself_at_two_places() {
        for (issuer, oidc, oauth) in [
            (
                "https://a.example",
                "https://a.example/.well-known/openid-configuration",
                "https://a.example/.well-known/oauth-authorization-server",
            ),
            (
                "https://a.example/",
                "https://a.example/.well-known/openid-configuration",
                "https://a.example/.well-known/oauth-authorization-server",
            ),
            (
                "https://a.example:8443/realms/x",
                "https://a.example:8443/realms/x/.well-known/openid-configuration",
                "https://a.example:8443/.well-known/oauth-authorization-server/realms/x",
            ),
        ] {
            let places = KeyUrl::well_known(issuer, false).expect("good");
            assert_eq!(places.map(|url| url.to_string()), [oidc, oauth]);
        }
        assert_eq!(KeyUrl::well_known("https://a.example/?x=1", false), Err(UrlFault::NotAUrl));
        assert_eq!(KeyUrl::well_known("accounts.example", false), Err(UrlFault::NotAUrl));
    }
}

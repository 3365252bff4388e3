//! URLs that the gateway sends requests to on its own: key sets and webhooks. A forged key set would make forged tokens
//! valid, so the connection must use TLS or stay on this machine.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use rustls::pki_types::ServerName;

/// `https://host/path?query`. `http://` only to this machine, or where the configuration allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureUrl {
    pub tls: bool,
    /// A name or an address. An IPv6 address has no brackets here.
    pub host: String,
    pub port: u16,
    /// As in the `Host` header field.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

/// Why a URL is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("not a URL that keys can be fetched from: expected https://host/path")]
    Invalid,
    #[error("the URL has a user name or password")]
    Credentials,
    #[error("the URL has a fragment")]
    Fragment,
    #[error("keys would be fetched in cleartext: use https://")]
    Cleartext,
}

impl SecureUrl {
    pub fn parse(text: &str, allow_http: bool) -> Result<Self, UrlError> {
        if text.contains('@') {
            return Err(UrlError::Credentials);
        }
        if text.contains('#') {
            return Err(UrlError::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| UrlError::Invalid)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlError::Invalid),
        };
        let authority = uri.authority().ok_or(UrlError::Invalid)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = if authority.as_str() == authority.host() {
            Some(if tls { 443 } else { 80 })
        } else {
            authority.port_u16().filter(|port| *port != 0)
        };
        let port = port.ok_or(UrlError::Invalid)?;
        if ServerName::try_from(host.as_str()).is_err() {
            return Err(UrlError::Invalid);
        }
        if !tls && !allow_http && !is_loopback(&host) {
            return Err(UrlError::Cleartext);
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(SecureUrl { tls, host, port, authority: authority.as_str().to_owned(), target })
    }

    /// The whole URL. Its query can have a secret of the operator.
    pub fn text(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.target)
    }

    /// The two URLs of an issuer's metadata: that of OpenID Connect Discovery, then that of RFC 8414, which puts the
    /// well-known part before the issuer's path.
    pub fn well_known(issuer: &str, allow_http: bool) -> Result<[Self; 2], UrlError> {
        let (origin, path) = split_issuer(issuer, allow_http)?;
        Ok([
            SecureUrl::parse(&format!("{origin}{path}/.well-known/openid-configuration"), allow_http)?,
            SecureUrl::parse(&format!("{origin}/.well-known/oauth-authorization-server{path}"), allow_http)?,
        ])
    }

    /// The URL of the configuration of a transmitter of security events. The well-known part stands before the issuer's
    /// path (SSF section 7.2.1).
    pub fn event_transmitter(issuer: &str, allow_http: bool) -> Result<Self, UrlError> {
        let (origin, path) = split_issuer(issuer, allow_http)?;
        SecureUrl::parse(&format!("{origin}/.well-known/ssf-configuration{path}"), allow_http)
    }
}

/// The origin and the path of an issuer's URL, without a slash at its end.
fn split_issuer(issuer: &str, allow_http: bool) -> Result<(&str, &str), UrlError> {
    // No standard allows a query, and it would end up in the middle of the path.
    if issuer.contains('?') {
        return Err(UrlError::Invalid);
    }
    SecureUrl::parse(issuer, allow_http)?;
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let authority = issuer.find("://").map_or(0, |scheme| scheme + 3);
    let path = issuer[authority..].find('/').map_or(issuer.len(), |slash| authority + slash);
    Ok(issuer.split_at(path))
}

/// Without the query, which can have a secret of the operator.
impl fmt::Display for SecureUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

/// Returns true for hosts on this machine: requests to them need no TLS. An IPv6 address has no brackets.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_urls_are_accepted() {
        let rows = [
            ("https://login.example/keys?v=2", Ok(("login.example", 443, "/keys?v=2"))),
            ("https://login.example", Ok(("login.example", 443, "/"))),
            ("https://[2001:db8::1]:8443/k", Ok(("2001:db8::1", 8443, "/k"))),
            ("http://127.0.0.1:8080/k", Ok(("127.0.0.1", 8080, "/k"))),
            ("http://[::1]/k", Ok(("::1", 80, "/k"))),
            ("http://LocalHost/k", Ok(("LocalHost", 80, "/k"))),
            ("http://login.example/k", Err(UrlError::Cleartext)),
            ("http://127.0.0.1.example/k", Err(UrlError::Cleartext)),
            ("http://localhost.example/k", Err(UrlError::Cleartext)),
            ("https://me:pw@login.example/k", Err(UrlError::Credentials)),
            ("https://login.example/k#x", Err(UrlError::Fragment)),
            ("https://login.example:0/k", Err(UrlError::Invalid)),
            ("https://login.example:99999/k", Err(UrlError::Invalid)),
            ("https://login.example:/k", Err(UrlError::Invalid)),
            ("https://a b/k", Err(UrlError::Invalid)),
            ("https:///k", Err(UrlError::Invalid)),
            ("file:///etc/keys.json", Err(UrlError::Invalid)),
            ("login.example/k", Err(UrlError::Invalid)),
            ("/k", Err(UrlError::Invalid)),
            ("", Err(UrlError::Invalid)),
        ];
        for (text, expected) in rows {
            let parsed = SecureUrl::parse(text, false);
            let shown = parsed.as_ref().map(|url| (url.host.as_str(), url.port, url.target.as_str())).map_err(|f| *f);
            assert_eq!(shown, expected, "{text}");
        }
        assert!(SecureUrl::parse("http://login.example/k", true).is_ok_and(|url| !url.tls));
    }

    #[test]
    fn an_issuer_has_two_metadata_urls() {
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
            let urls = SecureUrl::well_known(issuer, false).expect("good");
            assert_eq!(urls.map(|url| url.to_string()), [oidc, oauth]);
        }
        assert_eq!(SecureUrl::well_known("https://a.example/?x=1", false), Err(UrlError::Invalid));
        for (issuer, url) in [
            ("https://a.example", "https://a.example/.well-known/ssf-configuration"),
            ("https://a.example/", "https://a.example/.well-known/ssf-configuration"),
            ("https://a.example:8443/x/y", "https://a.example:8443/.well-known/ssf-configuration/x/y"),
        ] {
            let found = SecureUrl::event_transmitter(issuer, false).map(|url| url.to_string());
            assert_eq!(found.as_deref(), Ok(url));
        }
        assert_eq!(SecureUrl::event_transmitter("https://a.example/?x=1", false), Err(UrlError::Invalid));
        assert_eq!(SecureUrl::well_known("accounts.example", false), Err(UrlError::Invalid));
    }
}

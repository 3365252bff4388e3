//! `[sign_in]`.

use std::sync::Arc;
use std::time::Duration;

use super::paths::SignInPaths;
use crate::auth::provider::Provider;
use crate::broker::sign_in::SignInProviderSettings;

#[derive(Clone, Debug, PartialEq)]
pub struct SignInSettings {
    pub paths: SignInPaths,
    /// `sign_in.external_urls`: at least one.
    pub external_urls: Vec<ExternalUrl>,
    /// `sign_in.absolute_lifetime`
    pub absolute: Duration,
    /// `sign_in.idle_lifetime`
    pub idle: Duration,
    /// All of `[[provider]]`.
    pub providers: Vec<(Arc<Provider>, SignInProviderSettings)>,
}

/// An origin at which browsers reach the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalUrl {
    /// `https://` or `http://`, and the authority in lower case without a default port.
    pub origin: String,
}

impl SignInSettings {
    /// The origin that browsers know by this `Host`. It is never built from the request: a forged `Host` would send the
    /// code to another site.
    pub fn origin_of(&self, host: &str) -> Option<&str> {
        self.external_urls.iter().map(|url| &*url.origin).find(|origin| is_host_of(origin, host))
    }
}

/// Returns true if a request with this `Host` is one to this origin.
pub fn is_host_of(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = if scheme == "https" { ":443" } else { ":80" };
    host.strip_suffix(default).unwrap_or(host).eq_ignore_ascii_case(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_chooses_among_the_configured_origins() {
        let url = |origin: &str| ExternalUrl { origin: origin.to_owned() };
        let settings = SignInSettings {
            paths: SignInPaths { path: "/oauth2".into(), providers: Vec::new() },
            external_urls: vec![url("https://app.example"), url("https://b.example:8443"), url("http://localhost:80")],
            absolute: Duration::ZERO,
            idle: Duration::ZERO,
            providers: Vec::new(),
        };
        for (host, origin) in [
            ("app.example", Some("https://app.example")),
            ("APP.example:443", Some("https://app.example")),
            ("b.example:8443", Some("https://b.example:8443")),
            ("b.example", None),
            ("app.example:80", None),
            ("app.example.evil", None),
            ("evilapp.example", None),
            ("", None),
        ] {
            assert_eq!(settings.origin_of(host), origin, "{host}");
        }
    }
}

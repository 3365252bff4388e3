//! `[forward_auth]`: where other proxies ask, how they ask, and which proxies may. Pure.

use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::protocols::http::forwarded::Networks;
use crate::types::secret;

/// The header in which a proxy shows the secret.
pub static SECRET: HeaderName = HeaderName::from_static("x-forward-auth-secret");

/// `[forward_auth]`
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardAuthSettings {
    /// `forward_auth.path`
    pub path: String,
    pub dialect: Dialect,
    pub callers: Callers,
}

/// `forward_auth.dialect`: where a call has the method, the host and the target of the request that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `X-Forwarded-Method`, `X-Forwarded-Host`, `X-Forwarded-Uri`
    XForwarded,
    /// `X-Original-Method`, `X-Original-Host`, `X-Original-URI`
    XOriginal,
    /// The call has them itself. Its target follows `forward_auth.path`.
    Prefix,
    /// The call is one of gRPC. Its message has them.
    ExtAuthzGrpc,
}

/// How one call came, which decides how it is read and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Fields of HTTP. The proxy reads a status.
    Http,
    /// A message of Envoy in a gRPC call. So is the answer, whatever is decided.
    Envoy,
    /// Another call than `forward_auth.dialect` expects. It is rejected with a status.
    Unexpected,
}

/// Where Envoy calls. No setting of Envoy changes it.
pub const CHECK_PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

impl ForwardAuthSettings {
    /// Returns true if a request for this path is a call.
    pub fn is_call(&self, path: &str) -> bool {
        match self.dialect {
            // Also without a slash after it: a target that the proxy has joined wrongly must not reach a route.
            Dialect::Prefix => path.starts_with(&self.path),
            Dialect::XForwarded | Dialect::XOriginal | Dialect::ExtAuthzGrpc => path == self.path,
        }
    }
}

/// The proxies that may ask. A proxy says which request it has received from which client, so no other may.
#[derive(Clone, PartialEq)]
pub struct Callers {
    /// `forward_auth.from`. Empty: every address.
    pub from: Networks,
    /// A hash of the content of `forward_auth.secret_file`. `None`: no secret is required.
    secret: Option<[u8; 32]>,
}

impl Callers {
    /// `None` if there is neither a network nor a secret: then every client could ask.
    pub fn new(from: Networks, secret: Option<&[u8]>) -> Option<Self> {
        let secret = secret.map(|secret| secret::digest(&[secret]));
        (!from.is_empty() || secret.is_some()).then_some(Callers { from, secret })
    }

    pub(super) fn need_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// Returns true if this peer may ask. If both are configured, it needs both the address and the secret.
    pub fn allow(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        (self.from.is_empty() || self.from.contains(peer)) && self.secret.is_none_or(|hash| shows(headers, &hash))
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callers({:?}, secret: {})", self.from, self.secret.is_some())
    }
}

/// Takes the same time wherever the secret differs.
fn shows(headers: &HeaderMap, hash: &[u8; 32]) -> bool {
    let mut shown = headers.get_all(&SECRET).iter();
    let first = shown.next();
    let second = shown.next();
    second.is_none() && first.is_some_and(|shown| secret::equal(hash, &secret::digest(&[shown.as_bytes()])))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn callers(from: &[&str], secret: Option<&str>) -> Option<Callers> {
        let from = from.iter().map(|network| network.parse().expect("a network")).collect();
        Callers::new(from, secret.map(str::as_bytes))
    }

    #[test]
    fn without_networks_and_secret_there_are_no_callers() {
        assert!(callers(&[], None).is_none());
        assert!(callers(&["10.0.0.0/8"], None).is_some() && callers(&[], Some("s")).is_some());
    }

    #[test]
    fn a_caller_needs_its_address_and_the_secret() {
        for (from, secret, peer, shown, expected) in [
            (&["10.0.0.0/8"][..], None, "10.1.2.3", &[][..], true),
            (&["10.0.0.0/8"], None, "::ffff:10.1.2.3", &[], true),
            (&["10.0.0.0/8"], None, "11.1.2.3", &["s"], false),
            (&[], Some("s"), "11.1.2.3", &["s"], true),
            (&[], Some("s"), "11.1.2.3", &[], false),
            (&[], Some("s"), "11.1.2.3", &["t"], false),
            (&[], Some("s"), "11.1.2.3", &[""], false),
            (&[], Some("s"), "11.1.2.3", &["s", "s"], false),
            (&["10.0.0.0/8"], Some("s"), "10.1.2.3", &["s"], true),
            (&["10.0.0.0/8"], Some("s"), "10.1.2.3", &[], false),
            (&["10.0.0.0/8"], Some("s"), "11.1.2.3", &["s"], false),
        ] {
            let headers = shown.iter().map(|shown| (SECRET.clone(), HeaderValue::from_static(shown))).collect();
            let allowed = callers(from, secret).expect("callers").allow(peer.parse().expect("an address"), &headers);
            assert_eq!(allowed, expected, "{from:?} {secret:?} {peer} {shown:?}");
        }
    }

    #[test]
    fn callers_are_shown_without_their_secret() {
        assert_eq!(format!("{:?}", callers(&[], Some("geheim"))), "Some(Callers(Networks([]), secret: true))");
    }

    #[test]
    fn a_call_has_the_path_or_begins_with_it() {
        for (dialect, path, expected) in [
            (Dialect::XOriginal, "/auth", true),
            (Dialect::XForwarded, "/auth", true),
            (Dialect::XForwarded, "/auth/", false),
            (Dialect::XForwarded, "/%61uth", false),
            (Dialect::ExtAuthzGrpc, "/auth", true),
            (Dialect::ExtAuthzGrpc, "/auth/x", false),
            (Dialect::Prefix, "/auth/orders", true),
            (Dialect::Prefix, "/auth", true),
            (Dialect::Prefix, "/auth*", true),
            (Dialect::Prefix, "/aut", false),
        ] {
            let callers = callers(&["10.0.0.0/8"], None).expect("callers");
            let settings = ForwardAuthSettings { path: "/auth".into(), dialect, callers };
            assert_eq!(settings.is_call(path), expected, "{dialect:?} {path}");
        }
    }
}

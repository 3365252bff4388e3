//! `listener.public_url`: the URL of a listener behind a proxy that changes what `htu` is compared with.
//!
//! It is fixed, and not read from `X-Forwarded-Host`: many proxies pass that field on from their clients. A client
//! could then name another host in it, for which it has got a token and a proof.

use super::htu::TargetUri;

/// An absolute URL without query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    pub is_https: bool,
    /// The host with an optional port.
    pub authority: String,
    /// Empty, or a path without a final slash.
    pub prefix: String,
}

impl PublicUrl {
    /// The URL of a request for this path.
    pub fn with<'r>(&'r self, path: &'r str, is_websocket: bool) -> TargetUri<'r> {
        TargetUri { is_https: self.is_https, authority: &self.authority, prefix: &self.prefix, path, is_websocket }
    }
}

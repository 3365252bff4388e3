//! The needs of a peer proxy at its start: addresses, keys, the origin. Shared by `peers`, `peer_files` and
//! `envoy_file`.

use std::net::SocketAddr;

use crate::keys::Keys;

/// One listener for each kind of token, so that a peer evaluates as few rules per request as possible.
pub struct Ports {
    pub plain: SocketAddr,
    pub encrypted: SocketAddr,
    pub rs256: SocketAddr,
    pub hs256: SocketAddr,
    /// Only Envoy listens here.
    pub eddsa: SocketAddr,
}

#[derive(Clone, Copy)]
pub struct PeerSetup<'s> {
    pub keys: &'s Keys,
    pub cpus: Option<&'s str>,
    pub origin: SocketAddr,
    /// Maximum number of connections that the peer must accept at the same time.
    pub connections: usize,
    /// If true, the peer writes an access log in JSON, and sets a request id and forwarding headers, as operators let
    /// it.
    pub logged: bool,
}

//! Listeners: accept, TLS handshake with a deadline, one hyper connection, each request to the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use crate::tls;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSettings {
    pub address: SocketAddr,
    pub tls: tls::Settings,
}

/// `[timeouts]` and `[limits]` of the client's side.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionSettings {
    /// `timeouts.tls_handshake`
    pub tls_handshake: Duration,
    /// `timeouts.head`: from the first byte waited for to the end of the request head; also how long HTTP/1 keep-alive idles.
    pub head: Duration,
    /// `timeouts.keep_alive`: an idle HTTP/2 connection is pinged after this, and closed if it does not answer.
    pub keep_alive: Duration,
    /// `timeouts.body_idle`: longest silence in the middle of a body, either way.
    pub body_idle: Duration,
    /// `timeouts.drain`: what is still running so long after SIGTERM is cut.
    pub drain: Duration,
    /// `limits.connections`: open client connections, over all workers.
    pub connections: usize,
    /// `limits.head_size`: bytes of a request head.
    pub head_size: usize,
    /// `limits.headers`: fields of a request head.
    pub headers: usize,
    /// `limits.uri_size`
    pub uri_size: usize,
    /// `limits.body_size`: `None` for any.
    pub body_size: Option<u64>,
    /// `limits.streams`: HTTP/2 streams of one connection.
    pub streams: u32,
}

//! The settings of `[[listener]]`, and the limits and timeouts of client connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::pace::MinRate;
use crate::limits::penalty::PenaltySettings;
use crate::protocols::http::framing::Limits;
use crate::protocols::tls::{self, ServerTlsSettings};
use crate::tokens::dpop::PublicUrl;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSettings {
    pub address: SocketAddr,
    pub tls: ServerTlsSettings,
    /// `None`: clients are not asked for certificates.
    pub clients: Option<tls::ClientAuthSettings>,
    /// If true, each connection begins with a PROXY protocol header, sent by a peer that `[forwarding]` trusts.
    pub proxy_protocol: bool,
    /// Where clients reach the listener. `None`: at the host of each request.
    pub public_url: Option<Arc<PublicUrl>>,
}

/// The part of `[timeouts]` and `[limits]` that concerns client connections.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionSettings {
    /// `timeouts.tls_handshake`
    pub tls_handshake: Duration,
    /// `timeouts.request_header`: how long a client may take to send a complete request header. Also how long an idle
    /// HTTP/1 connection stays open.
    pub request_header: Duration,
    /// `timeouts.http2_idle`: how long an HTTP/2 connection without a request stays open.
    pub http2_idle: Duration,
    /// `timeouts.write`: how long a client may read nothing of its response.
    pub write: Duration,
    /// `limits.min_download_rate`: how fast a client has to read its response.
    pub min_download_rate: MinRate,
    /// `limits.min_upload_rate`: how fast a client has to send its request body.
    pub min_upload_rate: MinRate,
    /// `timeouts.body_idle`: maximum pause between two pieces of a body, in either direction.
    pub body_idle: Duration,
    /// `timeouts.token_call_body`: how long the body of a call that the gateway answers itself may take.
    pub token_call_body: Duration,
    /// `timeouts.request`: how long a request and its response may take, unless the response is a stream.
    pub request: Option<Duration>,
    /// `timeouts.max_connection_age`: an older connection is closed once its requests in flight are done.
    pub max_connection_age: Duration,
    /// `limits.requests_per_connection`
    pub requests_per_connection: u64,
    /// `timeouts.drain`: how long requests may continue after SIGTERM.
    pub drain: Duration,
    /// `limits.connections`: maximum open client connections, over all workers.
    pub connections: usize,
    /// `limits.connections_per_address`: maximum open connections of one address; 0 for no limit.
    pub connections_per_address: usize,
    /// `limits.concurrent_requests`: maximum requests in flight, over all workers; 0 for no limit.
    pub concurrent_requests: usize,
    /// `limits.reserve_percent`: the part of them that is kept for addresses with few requests in flight.
    pub reserve_percent: usize,
    /// `limits.request_header_size`, in bytes.
    pub request_header_size: usize,
    /// `limits.request_header_count`: maximum header fields of a request.
    pub request_header_count: usize,
    /// `limits.uri_size`
    pub uri_size: usize,
    pub linger: LingerSettings,
    /// `limits.body_size`: `None` for no limit.
    pub body_size: Option<u64>,
    /// `limits.http2_concurrent_streams`: maximum streams of one HTTP/2 connection.
    pub http2_concurrent_streams: u32,
    pub flood: FloodSettings,
    pub penalty: PenaltySettings,
    /// `limits.retry_delay`: how long a response 429 is delayed for a client that got many in a row; zero for no delay.
    pub retry_delay: Duration,
}

impl ConnectionSettings {
    pub(super) fn head_limits(&self) -> Limits {
        let &ConnectionSettings { request_header_size, request_header_count, .. } = self;
        Limits { request_header_size, request_header_count }
    }

    /// These settings after a reload that has read `next`. What the process divides among all connections, and what was
    /// counted against it, stays as it was at the start.
    pub fn reloaded(&self, next: &Self) -> Self {
        ConnectionSettings {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            concurrent_requests: self.concurrent_requests,
            reserve_percent: self.reserve_percent,
            linger: self.linger,
            penalty: self.penalty,
            retry_delay: self.retry_delay,
            ..next.clone()
        }
    }
}

/// How much the gateway reads after a response that came before the end of its request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LingerSettings {
    /// `limits.discarded_body_size`, in bytes.
    pub max_bytes: usize,
    /// `timeouts.lingering_close`
    pub max_time: Duration,
}

/// Maximum HTTP/2 frames of one connection that carry no data and begin no request. 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloodSettings {
    /// `limits.http2_control_frames`, in one second.
    pub http2_control_frames: u32,
    /// `limits.http2_resets`, in ten seconds.
    pub http2_resets: u32,
}

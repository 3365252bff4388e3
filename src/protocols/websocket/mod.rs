//! WebSockets: the upgrade, and the bytes after it.
//!
//! A tunnel opens only after the upstream has said 101 to `websocket` (Pingora CVE-2026-2833 opened one before, for any
//! `Upgrade`). Other protocols are not carried: their `Upgrade` is dropped, and the request goes on as an ordinary one. Over
//! HTTP/2 a WebSocket begins otherwise ([`http2`]), and is the same from then on ([`carry`]).

mod carry;
mod frames;
pub mod http2;

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::upgrade::OnUpgrade;

use crate::protocols::http::field_list;
use crate::types::reject::{Reason, Reject};

pub use carry::TunnelEnd;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");

/// Both ends, once each has switched.
pub struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
    /// How long a client may make no room for what it is sent, where its connection does not limit that itself.
    client_stall: Option<Duration>,
}

/// The client's end of a tunnel that it asks for.
pub struct UpgradeRequest {
    client: OnUpgrade,
    /// Over HTTP/2: what the upstream has to answer to the key that we made.
    accept: Option<HeaderValue>,
}

/// Takes the client's end of the tunnel, if this request asks for one.
pub fn asked_for<B: Body>(request: &mut Request<B>) -> Option<UpgradeRequest> {
    // What follows the head is the tunnel's, and nothing else's.
    let asks = is_asked_for(request) && request.body().is_end_stream();
    asks.then(|| UpgradeRequest { accept: http2::expected_accept(request), client: hyper::upgrade::on(request) })
}

/// Does this request ask for a WebSocket (RFC 6455 section 4.1)?
pub fn is_asked_for<B>(request: &Request<B>) -> bool {
    *request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && names_websocket(request.headers())
        && field_list::has(request.headers(), &header::CONNECTION, "upgrade")
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::UPGRADE).iter();
    let names = values.next().is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket"));
    names && values.next().is_none()
}

/// Puts the upgrade back that header hygiene took out.
pub fn ask(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
}

/// The tunnel, if the upstream agreed. An upstream that switches without being asked is broken. `stall`: how long a client
/// may make no room for what it is sent over HTTP/2.
pub fn agreed<B>(
    asked: Option<UpgradeRequest>,
    response: &mut Response<B>,
    stall: Duration,
) -> Result<Option<Tunnel>, Reject> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(None);
    }
    let broken = |how: &'static str| Err(Reject::new(Reason::UpstreamBroken, how));
    let Some(UpgradeRequest { client, accept }) = asked else {
        return broken("it switched protocols without being asked");
    };
    if !names_websocket(response.headers()) {
        return broken("it switched to another protocol than websocket");
    }
    if accept.is_some() && accept.as_ref() != response.headers().get(header::SEC_WEBSOCKET_ACCEPT) {
        return broken("Sec-WebSocket-Accept does not fit the key that it was asked with");
    }
    let client_stall = accept.is_some().then_some(stall);
    Ok(Some(Tunnel { client, upstream: hyper::upgrade::on(response), client_stall }))
}

impl Tunnel {
    /// Makes the head of the upstream's answer that of ours, in the client's protocol.
    pub fn announce<B>(&self, response: &mut Response<B>) {
        if self.client_stall.is_none() {
            return ask(response.headers_mut());
        }
        *response.status_mut() = StatusCode::OK;
        http2::clean(response.headers_mut());
    }
}

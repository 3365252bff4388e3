//! The upgrade of a request to a WebSocket, on both sides of the gateway (RFC 6455 section 4).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;

use super::tunnel::Tunnel;
use crate::protocols::http::field_list;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");

/// Appended to a key to compute its `Sec-WebSocket-Accept` (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The client's end of the tunnel that it requested.
pub struct UpgradeRequest {
    client: OnUpgrade,
    /// Over HTTP/2, the `Sec-WebSocket-Accept` for the key that the gateway generated.
    accept: Option<HeaderValue>,
}

/// Returns true if this request asks for an upgrade to a WebSocket.
pub fn is_upgrade_request<B>(request: &Request<B>) -> bool {
    *request.method() == Method::GET && request.version() == Version::HTTP_11 && asks_for_websocket(request.headers())
}

/// Returns true if these are the fields of a request for an upgrade to a WebSocket. `Upgrade` alone asks for nothing
/// (RFC 9110 section 7.8).
pub fn asks_for_websocket(headers: &HeaderMap) -> bool {
    has_websocket_upgrade(headers) && field_list::contains(headers, &header::CONNECTION, "upgrade")
}

/// Takes the client's end of the tunnel out of a request for an upgrade. A request with a body gets no upgrade: the
/// bytes after its head belong to the tunnel.
pub fn take_upgrade<B: Body>(request: &mut Request<B>) -> Option<UpgradeRequest> {
    if !is_upgrade_request(request) || !request.body().is_end_stream() {
        return None;
    }
    Some(UpgradeRequest { accept: expected_accept(request), client: hyper::upgrade::on(request) })
}

/// Sets `Connection` and `Upgrade`, which header hygiene removes.
pub fn set_upgrade_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
}

/// Returns the tunnel if the backend has accepted the upgrade. Fails if it switched protocols in any other way.
/// `write_timeout`: how long a client over HTTP/2 may leave no room for data.
pub fn accept_upgrade<B>(
    requested: Option<UpgradeRequest>,
    response: &mut Response<B>,
    write_timeout: Duration,
) -> Result<Option<Tunnel>, Reject> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(None);
    }
    let broken = |detail: &'static str| Err(Reject::new(Reason::UpstreamBroken, detail));
    let Some(UpgradeRequest { client, accept }) = requested else {
        return broken("the backend switched protocols without a request for it");
    };
    if !has_websocket_upgrade(response.headers()) {
        return broken("the backend switched to another protocol than websocket");
    }
    if accept.is_some() && accept.as_ref() != response.headers().get(header::SEC_WEBSOCKET_ACCEPT) {
        return broken("the backend's Sec-WebSocket-Accept does not match the key");
    }
    let client_write_timeout = accept.is_some().then_some(write_timeout);
    Ok(Some(Tunnel { client, backend: hyper::upgrade::on(response), client_write_timeout }))
}

impl Tunnel {
    /// Turns the head of the backend's response into that of the gateway's, in the client's protocol.
    pub fn set_response_head<B>(&self, response: &mut Response<B>) {
        let is_http1 = self.client_write_timeout.is_none();
        if is_http1 {
            return set_upgrade_headers(response.headers_mut());
        }
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

/// Returns true if there is one `Upgrade` field and its value is `websocket`.
fn has_websocket_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::UPGRADE).iter();
    let is_named = values.next().is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket"));
    is_named && values.next().is_none()
}

/// The `Sec-WebSocket-Accept` that the backend has to send if the gateway generated the key. Over HTTP/1.1 the key is
/// the client's, and the client checks it.
fn expected_accept<B>(request: &mut Request<B>) -> Option<HeaderValue> {
    request.extensions_mut().remove::<Protocol>()?;
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY)?;
    HeaderValue::from_str(&STANDARD.encode(secret::sha1(&[key.as_bytes(), GUID]))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 section 1.3.
    #[test]
    fn the_accept_of_the_standards_example_is_expected() {
        let mut request = Request::new(());
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        request.headers_mut().insert(header::SEC_WEBSOCKET_KEY, key);
        assert_eq!(expected_accept(&mut request).expect("a value"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

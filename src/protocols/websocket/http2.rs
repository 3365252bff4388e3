//! WebSockets over HTTP/2 (RFC 8441). The gateway turns an extended CONNECT into the HTTP/1.1 handshake that it stands
//! for, and then decides about it and forwards it as one. The stream of the CONNECT is the client's end of the tunnel.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, Request, Version, header};
use hyper::ext::Protocol;

use super::upgrade::set_upgrade_headers;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Turns an extended CONNECT into a handshake. Any other request stays as it is, a plain CONNECT too: that is rejected
/// later.
pub fn translate<B>(request: &mut Request<B>) -> Result<(), Reject> {
    if *request.method() != Method::CONNECT {
        return Ok(());
    }
    let Some(protocol) = request.extensions().get::<Protocol>() else { return Ok(()) };
    if !protocol.as_str().eq_ignore_ascii_case("websocket") {
        return Err(Reject::new(
            Reason::ProtocolNotSupported,
            "an extended CONNECT for another protocol than websocket",
        ));
    }
    *request.method_mut() = Method::GET;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    set_upgrade_headers(headers);
    let key = STANDARD.encode(secret::random::<16>());
    // Base64 is always a valid header value.
    headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).map_err(|_| Reason::Internal)?);
    headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    Ok(())
}

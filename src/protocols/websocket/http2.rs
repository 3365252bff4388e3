//! WebSockets over HTTP/2 (RFC 8441): an extended CONNECT becomes the HTTP/1 handshake that it stands for, and is judged and
//! forwarded as one. Its stream then is the client's end of the tunnel.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method, Request, Version, header};
use hyper::ext::Protocol;

use super::{UPGRADE, WEBSOCKET};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Makes a handshake of an extended CONNECT, and leaves any other request as it is: a plain CONNECT among them, which
/// is refused further on.
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
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
    let key = STANDARD.encode(secret::random::<16>());
    // Base64 is always a header value.
    headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).map_err(|_| Reason::Internal)?);
    headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    Ok(())
}

/// What the upstream has to answer, if the key is ours. Over HTTP/1 it is the client's, and the client checks it.
pub(super) fn expected_accept<B>(request: &mut Request<B>) -> Option<HeaderValue> {
    request.extensions_mut().remove::<Protocol>()?;
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY)?;
    HeaderValue::from_str(&STANDARD.encode(secret::sha1(&[key.as_bytes(), GUID]))).ok()
}

/// Takes from the answer what only HTTP/1 says.
pub(super) fn clean(headers: &mut HeaderMap) {
    headers.remove(header::SEC_WEBSOCKET_ACCEPT);
    headers.remove(header::CONTENT_LENGTH);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_of_the_standards_own_example_is_expected() {
        let mut request = Request::new(());
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        request.headers_mut().insert(header::SEC_WEBSOCKET_KEY, key);
        assert_eq!(expected_accept(&mut request).expect("a value"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

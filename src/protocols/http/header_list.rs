//! The size of a header list as HTTP/2 counts it: uncompressed, and 32 bytes more for each field (RFC 9113 section
//! 6.5.2). Pure.

use http::{HeaderMap, Method, Request};
use hyper::ext::Protocol;

const PER_FIELD: usize = 32;

// What each pseudo-header costs besides its value.
const METHOD: usize = ":method".len() + PER_FIELD;
const SCHEME: usize = ":scheme".len() + PER_FIELD;
const AUTHORITY: usize = ":authority".len() + PER_FIELD;
const PATH: usize = ":path".len() + PER_FIELD;
const PROTOCOL: usize = ":protocol".len() + PER_FIELD;

/// The size of the head of this request, with its pseudo-headers.
pub fn size_of_head<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let scheme = uri.scheme_str().map_or(0, |scheme| SCHEME + scheme.len());
    let authority = uri.authority().map_or(0, |authority| AUTHORITY + authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| PATH + path.as_str().len());
    // Only an extended CONNECT has a protocol (RFC 8441 section 4).
    let protocol = (*request.method() == Method::CONNECT).then(|| request.extensions().get::<Protocol>()).flatten();
    let protocol = protocol.map_or(0, |protocol| PROTOCOL + protocol.as_str().len());
    METHOD + request.method().as_str().len() + scheme + authority + path + protocol + size_of_fields(request.headers())
}

/// The size of these fields.
pub fn size_of_fields(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + PER_FIELD).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each term is a name and its value.
    #[test]
    fn each_field_costs_32_bytes_more_than_its_text() {
        let request = Request::get("https://a.test/x?y").header("cookie", "a=1").header("cookie", "b=22");
        let of_get = 10 + 12 + 16 + 9 + 4 * 32;
        assert_eq!(size_of_head(&request.body(()).expect("a request")), of_get + 9 + 10 + 2 * 32);
        let mut connect = Request::connect("https://a.test/x?y").body(()).expect("a request");
        let of_connect = of_get - 3 + 7;
        assert_eq!(size_of_head(&connect), of_connect);
        connect.extensions_mut().insert(Protocol::from_static("websocket"));
        assert_eq!(size_of_head(&connect), of_connect + 18 + 32);
        assert_eq!(size_of_head(&Request::new(())), 10 + 6 + 2 * 32, "GET / without a host");
    }
}

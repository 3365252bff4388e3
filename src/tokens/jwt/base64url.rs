//! Base64url without padding, as the segments of a token use it (RFC 7515 section 2).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Decodes strictly: no padding and no stray bits, so that each value has exactly one encoding.
pub(crate) fn decode_segment(segment: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(segment).ok()
}

//! `Client-Cert` (RFC 9440): the certificate of a client, from the proxy that has terminated its TLS. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

/// No backend gets it: see `removed_fields`.
pub static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// The rest of the chain (section 2.3). The gateway does not read it, and no backend gets it.
pub static CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// Maximum length of the field's value. Certificates have 1 or 2 KiB.
const MAX_SIZE: usize = 16 * 1024;

/// The certificate in DER. `None` without the field.
///
/// The value is one byte sequence (RFC 9651 section 3.3.5) without parameters. A reader that took the first of two
/// would disagree with one that takes the last.
///
/// # Errors
/// What is wrong.
pub fn read(headers: &HeaderMap) -> Result<Option<Vec<u8>>, &'static str> {
    let mut fields = headers.get_all(&CLIENT_CERT).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err("there are two of them");
    }
    if field.len() > MAX_SIZE {
        return Err("it is too long");
    }
    let text = field.as_bytes().trim_ascii();
    let inside = text.strip_prefix(b":").and_then(|text| text.strip_suffix(b":")).filter(|inside| !inside.is_empty());
    let inside = inside.ok_or("expected base64 between colons")?;
    // Rejects other alphabets, missing padding and bits after the end.
    STANDARD.decode(inside).map(Some).map_err(|_| "the text between the colons is not base64")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_value_is_one_byte_sequence() {
        for (fields, expected) in [
            (&[][..], Ok(None)),
            (&[":AQID:"], Ok(Some(vec![1, 2, 3]))),
            (&[" :AQI=: "], Ok(Some(vec![1, 2]))),
            (&[":AQID:", ":AQID:"], Err("two")),
            (&[":AQID:, :AQID:"], Err("base64")),
            (&[":AQID:;a=1"], Err("colons")),
            (&["AQID"], Err("colons")),
            (&[":"], Err("colons")),
            (&["::"], Err("colons")),
            (&[":AQID"], Err("colons")),
            (&[":AQI:"], Err("base64")),
            (&[":AQJ=:"], Err("base64")),
            (&[":AQ ID:"], Err("base64")),
            (&[":_-ID:"], Err("base64")),
            (&["-----BEGIN CERTIFICATE-----"], Err("colons")),
            (&["\"AQID\""], Err("colons")),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(&CLIENT_CERT, HeaderValue::from_static(field));
            }
            match (read(&headers), expected) {
                (Err(problem), Err(part)) => assert!(problem.contains(part), "{fields:?}: {problem}"),
                (found, expected) => assert_eq!(found, expected, "{fields:?}"),
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(&CLIENT_CERT, HeaderValue::try_from(format!(":{}:", "A".repeat(MAX_SIZE))).expect("a value"));
        assert_eq!(read(&headers), Err("it is too long"));
    }
}

//! The codings in `Content-Encoding`. The gateway asks other servers for `identity`, and some send gzip all the same.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, header};

/// The first bytes of each member in gzip (RFC 1952 section 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b";

/// Returns the first field that names a coding, for a response to a request that accepts only `identity`. An empty
/// field names none.
pub fn other_than_identity(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get_all(header::CONTENT_ENCODING).iter().find(|field| !is_identity(field))
}

fn is_identity(field: &HeaderValue) -> bool {
    let mut codings = field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

/// Returns true if gzip is the only coding and the body begins as gzip does. Some servers name a coding and apply none.
pub fn is_gzip(headers: &HeaderMap, body: &[u8]) -> bool {
    let mut fields = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(field) = fields.next() else { return false };
    let coding = field.as_bytes().trim_ascii();
    let names_gzip = coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip");
    names_gzip && fields.next().is_none() && body.starts_with(GZIP)
}

/// Decodes a body in gzip. Returns `None` if more than `max_size` bytes come out.
///
/// # Errors
/// If the body is not gzip, or a part of one.
pub fn gunzip(body: &[u8], max_size: usize) -> io::Result<Option<Bytes>> {
    let mut decoded = Vec::new();
    let one_too_many = (max_size as u64).saturating_add(1);
    MultiGzDecoder::new(body).take(one_too_many).read_to_end(&mut decoded)?;
    if decoded.len() > max_size {
        return Ok(None);
    }
    Ok(Some(decoded.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn headers(fields: &[&'static str]) -> HeaderMap {
        let fields = fields.iter().map(|field| (header::CONTENT_ENCODING, HeaderValue::from_static(field)));
        HeaderMap::from_iter(fields)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).expect("memory is writable");
        encoder.finish().expect("memory is writable")
    }

    #[test]
    fn identity_in_any_case_and_nothing_are_no_coding() {
        let read = |fields: &[&'static str]| {
            let headers = headers(fields);
            other_than_identity(&headers).map(|field| field.as_bytes().to_vec())
        };
        for fields in [&[][..], &[""], &["identity"], &["Identity"], &["identity, IDENTITY,"], &["", "identity"]] {
            assert_eq!(read(fields), None, "{fields:?}");
        }
        for (fields, other) in [(&["gzip"][..], "gzip"), (&["identity", "br"], "br"), (&["utf-8"], "utf-8")] {
            assert_eq!(read(fields).as_deref(), Some(other.as_bytes()), "{fields:?}");
        }
        assert_eq!(read(&["identity, gzip"]).as_deref(), Some(&b"identity, gzip"[..]));
    }

    #[test]
    fn gzip_is_recognized_by_its_name_and_its_first_bytes() {
        let body = gzip(b"{}");
        for fields in [&["gzip"][..], &["GZIP"], &[" x-gzip "]] {
            assert!(is_gzip(&headers(fields), &body), "{fields:?}");
            assert!(!is_gzip(&headers(fields), b"{}"), "{fields:?}");
        }
        for fields in [&[][..], &["identity"], &["gzip, gzip"], &["gzip", "gzip"], &["deflate"]] {
            assert!(!is_gzip(&headers(fields), &body), "{fields:?}");
        }
    }

    #[test]
    fn gzip_is_decoded_up_to_a_size() {
        let content = vec![b'x'; 1_000_000];
        let bomb = gzip(&content);
        assert!(bomb.len() < 2_000);
        assert_eq!(gunzip(&bomb, content.len()).expect("gzip").as_deref(), Some(&content[..]));
        assert_eq!(gunzip(&bomb, content.len() - 1).expect("gzip"), None);
        let members = [gzip(b"{"), gzip(b"}")].concat();
        assert_eq!(gunzip(&members, 2).expect("gzip").as_deref(), Some(&b"{}"[..]));
        for length in 0..gzip(b"{}").len() {
            assert!(gunzip(&gzip(b"{}")[..length], 2).is_err(), "{length}");
        }
    }
}

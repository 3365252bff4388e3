//! The codings in `Content-Encoding`.

use http::{HeaderMap, HeaderValue, header};

/// Returns the first field that names a coding, for a response to a request that accepts only `identity`. An empty
/// field names none.
pub fn other_than_identity(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get_all(header::CONTENT_ENCODING).iter().find(|field| !is_identity(field))
}

fn is_identity(field: &HeaderValue) -> bool {
    let mut codings = field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_in_any_case_and_nothing_are_no_coding() {
        let read = |fields: &[&'static str]| {
            let fields = fields.iter().map(|field| (header::CONTENT_ENCODING, HeaderValue::from_static(field)));
            let headers = HeaderMap::from_iter(fields);
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
}

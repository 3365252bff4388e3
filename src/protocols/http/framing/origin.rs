//! Reads the Origin of a head that is rejected, so that the page which sent it can read why.
//!
//! Such a head can be read in two ways, but its Origin decides nothing: a browser shows the response only to pages of
//! an origin that the gateway lists.

use http::HeaderValue;

/// The Origin, if there is exactly one in the complete lines of what was read of the head.
pub(super) fn origin_of(head: &[u8]) -> Option<HeaderValue> {
    let lines = head.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let fields = lines.map(<[u8]>::trim_ascii_end).skip_while(|line| line.is_empty()).skip(1);
    let mut origins = fields.take_while(|line| !line.is_empty()).filter_map(origin);
    let origin = origins.next()?;
    origins.next().is_none().then_some(origin).and_then(|value| HeaderValue::from_bytes(value).ok())
}

/// The value of the field, if its name is Origin.
fn origin(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at_checked("origin".len())?;
    let value = value.strip_prefix(b":")?;
    name.eq_ignore_ascii_case(b"origin").then_some(value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_origin_of_a_head_is_found() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\r\n", Some("https://app.example")),
            ("\r\nGET / HTTP/1.1\r\nORIGIN:null\r\nX: 1", Some("null")),
            ("GET / HTTP/1.1\norigin: \thttps://app.example \n", Some("https://app.example")),
            ("GET / HTTP/1.1\r\nOrigin:\r\n", Some("")),
            ("GET / HTTP/1.1\r\nOrigin: https://app.exam", None),
            ("GET / HTTP/1.1\r\nOrigin: a\r\nX: 1\r\norigin: a\r\n", None),
            ("GET / HTTP/1.1\r\nX: 1\r\n\r\nOrigin: a\r\n", None),
            ("Origin: a\r\n\r\n", None),
            ("GET / HTTP/1.1\r\nOrigin : a\r\nX-Origin: b\r\nOrigins: c\r\n", None),
            ("GET / HTTP/1.1\r\nOrigin: a\u{1}b\r\n", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(origin_of(head.as_bytes()), expected.map(HeaderValue::from_static), "{head:?}");
        }
    }
}

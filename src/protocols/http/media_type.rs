//! `Content-Type`, as far as it says how a body is to be read.

use http::{HeaderMap, header};

/// Without its parameters, as it was written: compare it without regard to case. `None` if there is none, or if several of
/// them say different things to different readers.
pub fn of(headers: &HeaderMap) -> Option<&str> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else { return None };
    only.to_str().ok()?.split(';').next().map(str::trim)
}

/// Is it of this type, and of no other?
pub fn is(headers: &HeaderMap, kind: &str) -> bool {
    of(headers).is_some_and(|named| named.eq_ignore_ascii_case(kind))
}

/// Server-sent events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    is(headers, "text/event-stream")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn one_type_is_read_and_two_are_none() {
        let read = |values: &[&'static str]| {
            let values = values.iter().map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value)));
            of(&HeaderMap::from_iter(values)).map(str::to_owned)
        };
        assert_eq!(read(&["application/json"]).as_deref(), Some("application/json"));
        assert_eq!(read(&[" Text/HTML ; charset=utf-8"]).as_deref(), Some("Text/HTML"));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["text/html", "application/json"]), None);
    }
}

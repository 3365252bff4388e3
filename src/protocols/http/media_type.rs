//! The media type in `Content-Type`.

use http::{HeaderMap, header};

/// The media type without its parameters, in the case in which it was written. `None` if the field is missing or
/// repeated: readers of a repeated field may choose different ones.
pub fn of(headers: &HeaderMap) -> Option<&str> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else { return None };
    let text = only.to_str().ok()?;
    Some(text.split_once(';').map_or(text, |(name, _)| name).trim_ascii())
}

/// Returns true if this is the media type. The comparison ignores case.
pub fn is(headers: &HeaderMap, media_type: &str) -> bool {
    of(headers).is_some_and(|named| named.eq_ignore_ascii_case(media_type))
}

/// Returns true for server-sent events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    is(headers, "text/event-stream")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_repeated_content_type_counts_as_none() {
        let read = |values: &[&'static str]| {
            let values = values.iter().map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value)));
            of(&HeaderMap::from_iter(values)).map(str::to_owned)
        };
        assert_eq!(read(&["application/json"]).as_deref(), Some("application/json"));
        assert_eq!(read(&[" Text/HTML ; charset=utf-8"]).as_deref(), Some("Text/HTML"));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["text/html", "application/json"]), None);
    }

    #[test]
    fn a_media_type_is_compared_whole() {
        let headers = |value| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
        for (value, expected) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("text/event-streams", false),
            ("text/html", false),
            ("", false),
        ] {
            assert_eq!(is_event_stream(&headers(value)), expected, "{value}");
        }
        assert!(!is_event_stream(&HeaderMap::new()));
    }
}

//! Cuts what clients and issuers wrote to `access_log.max_field_size`, before it is escaped.
//!
//! Over HTTP/2, HPACK lets a client repeat a field of some kilobytes with one byte, so a line may not grow with its
//! fields.

use std::borrow::Cow;

/// The end of a text that was cut.
const CUT: char = '…';

/// The text, or its first `max` bytes and a mark.
pub(in crate::telemetry) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut kept = text[..text.floor_char_boundary(max)].to_owned();
    kept.push(CUT);
    Cow::Owned(kept)
}

/// Returns true if `kept` is what [`cut`] leaves of `whole`, with any maximum.
pub(in crate::telemetry) fn is_cut_from(kept: &str, whole: &str) -> bool {
    kept == whole || kept.strip_suffix(CUT).is_some_and(|start| whole.starts_with(start))
}

/// As [`cut`], for bytes that may be no UTF-8. Each run of invalid bytes becomes one U+FFFD: one for each byte would
/// triple the text.
pub(super) fn cut_bytes(bytes: &[u8], max: usize) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return cut(text, max);
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() && !text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        if text.len() > max {
            break;
        }
    }
    match cut(&text, max) {
        Cow::Borrowed(_) => Cow::Owned(text),
        Cow::Owned(kept) => Cow::Owned(kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_character_and_marked() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "abcd…");
        assert_eq!(cut("abcé", 4), "abc…", "é has two bytes");
        assert_eq!(cut("éééé", 1), "…");
        assert!(matches!(cut("abcd", 4), Cow::Borrowed(_)), "a short text costs no allocation");
    }

    #[test]
    fn invalid_bytes_do_not_grow() {
        assert_eq!(cut_bytes(b"a\xff\xfe\xfdb\xff", 256), "a\u{fffd}b\u{fffd}");
        assert_eq!(cut_bytes(&[0xff; 4_000], 256), "\u{fffd}");
        assert_eq!(cut_bytes(b"abcd\xff", 4), "abcd…");
        assert_eq!(cut_bytes("abcdé".as_bytes(), 5), "abcd…");
        let alternating = cut_bytes(&b"\xffa".repeat(2_000), 256).into_owned();
        assert_eq!(alternating.len(), 256 + '…'.len_utf8());
    }
}

//! Canonical paths: the gateway matches routes against the same path that it forwards. Pure.
//!
//! A path that two programs could read in two ways is rejected, not rewritten. The known bypasses of other proxies come
//! from matching one form and forwarding another (Envoy `%2F..`, `..;`; Traefik `/../` and its encodings; oauth2-proxy
//! `#`; Heimdall `%2e%2e`). Rejected are: dot segments, plain, encoded or with parameters; encoded separators (`%2f %5c
//! %00 %3b %3f %23`), also encoded twice; backslashes; empty segments; `;`; control characters; bytes outside ASCII
//! that are not encoded.

use std::borrow::Cow;

use crate::types::reject::{Reason, Reject};

/// A path that can be read in one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPath<'r> {
    /// The path with percent-encoding decoded, so that `/%61dmin` matches the route of `/admin`. No decoded byte is a
    /// separator or makes a dot segment, so it has the same segments as the raw path.
    decoded: Cow<'r, [u8]>,
}

impl<'r> CanonicalPath<'r> {
    /// `path`: the raw path of the request, without the query.
    pub fn parse(path: &'r str) -> Result<Self, Reject> {
        match ambiguity(path.as_bytes()) {
            Some(ambiguity) => Err(Reject::new(Reason::BadPath, ambiguity)),
            None => Ok(CanonicalPath { decoded: decode(path.as_bytes()) }),
        }
    }

    /// The path that routes are matched against.
    pub fn as_bytes(&self) -> &[u8] {
        &self.decoded
    }
}

/// Why this path is ambiguous; `None` if it is not.
pub fn ambiguity(path: &[u8]) -> Option<&'static str> {
    if path.first() != Some(&b'/') {
        return Some("the path does not begin with a slash");
    }
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        // The last segment may be empty: a trailing slash.
        if segment.is_empty() && segments.peek().is_some() {
            return Some("an empty segment (//)");
        }
        if let Some(ambiguity) = segment_ambiguity(segment) {
            return Some(ambiguity);
        }
    }
    None
}

/// Why this segment is ambiguous; `None` if it is not.
pub(super) fn segment_ambiguity(segment: &[u8]) -> Option<&'static str> {
    let mut rest = segment;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let Some((hex, after)) = rest.split_at_checked(2) else {
                    return Some("an incomplete percent-encoding");
                };
                let Some(decoded) = hex_byte(hex) else { return Some("an invalid percent-encoding") };
                if let Some(ambiguity) = encoded_ambiguity(decoded) {
                    return Some(ambiguity);
                }
                rest = after;
            }
            b'\\' => return Some("a backslash"),
            b';' => return Some("a path parameter (;)"),
            b'#' | b'?' => return Some("a delimiter inside the path"),
            0x00..=0x20 | 0x7f => return Some("a control character or space"),
            0x80.. => return Some("a byte outside ASCII that is not percent-encoded"),
            _ => {}
        }
    }
    let decoded = decode(segment);
    match &*decoded {
        b"." | b".." => Some("a dot segment"),
        // A backend that decodes twice would see another path. The digits can be encoded too: %25%32%65.
        text if text.windows(3).any(|three| three[0] == b'%' && hex_byte(&three[1..]).is_some()) => {
            Some("a double percent-encoding")
        }
        // RFC 3629 section 3: an overlong form or a surrogate is no character, but some decoders make one of it. A
        // segment without an encoding is ASCII.
        text if matches!(decoded, Cow::Owned(_)) && str::from_utf8(text).is_err() => {
            Some("encoded bytes that are not UTF-8")
        }
        _ => None,
    }
}

fn encoded_ambiguity(decoded: u8) -> Option<&'static str> {
    match decoded {
        b'/' | b'\\' => Some("an encoded slash or backslash"),
        b';' | b'?' | b'#' => Some("an encoded delimiter (; ? #)"),
        0x00..=0x1f | 0x7f => Some("an encoded control character"),
        _ => None,
    }
}

/// Decodes percent-encoding. An invalid encoding stays as it is.
pub fn decode(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return Cow::Borrowed(path);
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        match after.get(..2).and_then(hex_byte) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                rest = &after[2..];
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    Cow::Owned(decoded)
}

fn hex_byte(hex: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match hex {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_pass_unchanged() {
        for path in [
            "/",
            "/a",
            "/a/",
            "/a/b.c/..d/.e/f..",
            "/%7Euser/100%25",
            "/caf%C3%A9",
            "/%E6%97%A5%E6%9C%AC/%F0%9F%90%BB",
            "/a=b&c,d:e@f!$'()*+",
            "/...",
        ] {
            assert!(CanonicalPath::parse(path).is_ok(), "{path}");
        }
        assert_eq!(CanonicalPath::parse("/%61dmin/%7e").expect("a canonical path").as_bytes(), b"/admin/~");
    }

    #[test]
    fn ambiguous_paths_are_rejected() {
        for path in [
            "",
            "a",
            "*",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/./a",
            "/a/..",
            "/a/../b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/%2e",
            "/a/..;x=1/b",
            "/a;x/b",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a%0d%0a",
            "/a%7f",
            "/a b",
            "/a\tb",
            "/a%3bb",
            "/a%3f",
            "/a%23",
            "/a#b",
            "/%252e%252e/",
            "/%252f",
            "/%25%32%66",
            "/%25%32f",
            "/%",
            "/%2",
            "/%zz",
            "/caf\u{e9}",
            "/\u{7f}",
            "/caf%E9",
            "/a%c0%afb",
            "/%c0%ae%c0%ae/b",
            "/%e0%80%af",
            "/%f0%80%80%af",
            "/%ed%a0%80",
            "/%f4%90%80%80",
            "/%c3/%a9",
            "/%80",
            "/%ff",
        ] {
            assert!(CanonicalPath::parse(path).is_err(), "{path:?}");
        }
    }
}

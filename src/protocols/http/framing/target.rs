//! The request target: hyper gets only one that it can read, so that each other one is rejected like any request, with
//! an id and a line in the log.

use http::{Method, Uri};
use memchr::memchr;

use super::error::FramingError;

/// hyper and the http crate read no longer one.
const MAX_SIZE: usize = u16::MAX as usize - 1;

/// Rejects a target that is no URI.
pub(super) fn check(target: &[u8]) -> Result<(), FramingError> {
    if target.len() <= MAX_SIZE && target.starts_with(b"/") && !has_unusual_byte(target) {
        return Ok(());
    }
    if target.is_empty() || target.iter().any(u8::is_ascii_control) {
        return Err(FramingError::malformed("an invalid request target"));
    }
    if memchr(b'#', target).is_some() {
        // A program that does not cut it off takes it for a part of the path (Envoy CVE-2021-32779).
        return Err(FramingError::malformed("a fragment in the request target"));
    }
    if target.len() > MAX_SIZE {
        return Err(FramingError::TARGET_TOO_LONG);
    }
    match Uri::try_from(target) {
        Ok(_) => Ok(()),
        Err(_) => Err(FramingError::INVALID_TARGET),
    }
}

/// Returns false if all bytes are such that a path and a query may have them (RFC 3986 appendix A), and some that
/// clients send as they are. Without a branch for each byte, so that the compiler vectorizes the loop.
fn has_unusual_byte(target: &[u8]) -> bool {
    target.iter().fold(false, |found, byte| {
        let is_outside = (*byte <= b' ') | (*byte >= 0x7f);
        found | is_outside | (*byte == b'"') | (*byte == b'#') | (*byte == b'<') | (*byte == b'>') | (*byte == b'`')
    })
}

/// The method and the path of a head with such a target, for the log. The path is escaped, and has no query.
pub(super) fn request_line_of(head: &[u8]) -> Option<(Method, Uri)> {
    let line = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).find(|line| !line.is_empty())?;
    let mut parts = line.split(|byte| *byte == b' ');
    let method = Method::from_bytes(parts.next()?).ok()?;
    let target = parts.next()?;
    let path = target.split(|byte| *byte == b'?').next()?;
    let escaped = path.iter().map(|byte| match byte {
        b'"' | b'<' | b'>' | b'`' | ..=b' ' | 0x7f.. => format!("%{byte:02X}"),
        _ => char::from(*byte).to_string(),
    });
    Some((method, escaped.collect::<String>().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quick look must not accept what hyper rejects.
    #[test]
    fn each_byte_is_judged_as_hyper_does() {
        for byte in 0..=u8::MAX {
            for target in [[b"/a".as_slice(), &[byte]].concat(), [b"/a?b=", &[byte][..]].concat()] {
                let is_read = Uri::try_from(&*target).is_ok() && byte != b'#';
                assert_eq!(check(&target).is_ok(), is_read, "{byte:#x} in {target:?}");
            }
        }
        for (target, expected) in [
            ("*", true),
            ("http://a.example/b?c", true),
            ("a.example:443", true),
            ("/\u{e9}", true),
            ("", false),
            ("a/b", false),
            ("http:///b", false),
        ] {
            assert_eq!(check(target.as_bytes()).is_ok(), expected, "{target}");
        }
        assert!(check(&vec![b'/'; MAX_SIZE]).is_ok());
        assert_eq!(check(&vec![b'/'; MAX_SIZE + 1]), Err(FramingError::TARGET_TOO_LONG));
    }

    #[test]
    fn the_log_gets_an_escaped_path_without_the_query() {
        for (head, expected) in [
            ("GET /a?b=\"c\" HTTP/1.1\r\nHost: a\r\n\r\n", Some("GET /a")),
            ("\r\nPOST /a/<b>?c HTTP/1.1\r\n", Some("POST /a/%3Cb%3E")),
            ("GET http://a.example/`?b HTTP/1.1\r\n", Some("GET /%60")),
            ("GET", None),
            ("", None),
        ] {
            let found = request_line_of(head.as_bytes()).map(|(method, uri)| format!("{method} {}", uri.path()));
            assert_eq!(found.as_deref(), expected, "{head:?}");
        }
    }
}

//! Where a browser goes after it has signed in or out: a path of the same origin, or `/`. Pure.
//!
//! What is not accepted is never an error: a user would be stuck. Other programs needed several patches for lists of
//! what is bad (CVE-2020-5233, CVE-2020-11053), so this says what is good.

use crate::protocols::http::path;

/// Maximum length, in bytes: it travels in a cookie.
const MAX_LEN: usize = 2048;

/// `target`: path, query and possibly a fragment. `is_own`: returns true for a path of the gateway itself.
pub(super) fn accepted(target: &str, is_own: impl Fn(&str) -> bool) -> &str {
    if is_accepted(target, is_own) { target } else { "/" }
}

fn is_accepted(target: &str, is_own: impl Fn(&str) -> bool) -> bool {
    let bytes = target.as_bytes();
    let is_plain = |byte: &u8| matches!(byte, 0x21..=0x7e) && *byte != b'\\';
    if bytes.len() > MAX_LEN || !bytes.iter().all(is_plain) {
        return false;
    }
    // `//host` is another host, and browsers read `/\host` in the same way.
    if bytes.first() != Some(&b'/') || bytes.get(1) == Some(&b'/') {
        return false;
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    path::ambiguity(path.as_bytes()).is_none() && !is_own(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each would lead to another site, or be read in two ways.
    const HOSTILE: [&str; 28] = [
        "",
        "//e",
        "///e",
        "/\\e",
        "\\\\e",
        "\\/e",
        "/%09/e",
        "/\t/e",
        "/%0d%0a/e",
        "/ /e",
        " /e",
        "/./\\e",
        "/.//e",
        "/%5ce",
        "/%2f%2fe",
        "/%2F/e",
        "http:e",
        "http:%2f%5ce",
        "https://e\\.ours/",
        "https://ours@e/",
        "https://ours.e/",
        "javascript:alert(1)",
        "/x\r\nSet-Cookie: a=b",
        "/\u{2215}e",
        "/\u{ff0f}e",
        "/a/../../e",
        "/a//e",
        "/oauth2/sign_out",
    ];

    fn is_own(path: &str) -> bool {
        path.starts_with("/oauth2/")
    }

    #[test]
    fn a_path_of_the_same_origin_is_kept() {
        for path in ["/", "/a", "/a/b?c=d&e=//f", "/a#/b", "/caf%C3%A9?q=%5C", "/a?next=https://other.example/"] {
            assert_eq!(accepted(path, is_own), path);
        }
        let longest = format!("/{}", "a".repeat(MAX_LEN - 1));
        assert_eq!(accepted(&longest, is_own), longest);
    }

    #[test]
    fn everything_else_becomes_the_root() {
        for path in HOSTILE {
            assert_eq!(accepted(path, is_own), "/", "{path:?}");
        }
        assert_eq!(accepted(&format!("/{}", "a".repeat(MAX_LEN)), is_own), "/");
    }
}

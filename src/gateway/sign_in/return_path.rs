//! The target of a browser that has signed in or out: a path of the same origin, or `/`. Pure.
//!
//! What is not accepted is never an error: a user would be stuck. Other programs needed several patches for lists of
//! what is bad (CVE-2020-5233, CVE-2020-11053), so this says what is good. The redirect names the origin, so that no
//! path leads to another one.

use crate::protocols::http::path;

/// Maximum length, in bytes: it travels in cookies.
const MAX_LEN: usize = 5 * 1024;

/// The paths that a browser may come back to.
#[derive(Clone, Copy)]
pub(super) struct ReturnPaths<'p> {
    /// Returns true for a path of the gateway itself.
    pub(super) is_own: &'p dyn Fn(&str) -> bool,
    /// Returns true for a path in a form that its route allows (`route.paths`).
    pub(super) is_routed: &'p dyn Fn(&str) -> bool,
}

impl ReturnPaths<'_> {
    /// `target`: path, query and possibly a fragment. Only its path if the rest cannot be kept.
    pub(super) fn accepted<'t>(&self, target: &'t str) -> &'t str {
        let path = path_of(target);
        let is_clear = || path::ambiguity(path.as_bytes()).is_none() || (self.is_routed)(path);
        if !is_kept(path) || !is_clear() || (self.is_own)(path) {
            return "/";
        }
        if is_kept(target) { target } else { path }
    }
}

pub(super) fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or_default()
}

fn is_kept(text: &str) -> bool {
    text.len() <= MAX_LEN && text.bytes().all(|byte| matches!(byte, 0x21..=0x7e))
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

    fn accepted(target: &str) -> &str {
        ReturnPaths { is_own: &is_own, is_routed: &|_| false }.accepted(target)
    }

    #[test]
    fn a_path_of_the_same_origin_is_kept() {
        for path in
            ["/", "/a", "/a/b?c=d&e=//f", "/a#/b", "/caf%C3%A9?q=%5C", "/a?next=https://other.example/", "/a?q=\\"]
        {
            assert_eq!(accepted(path), path);
        }
        let longest = format!("/{}", "a".repeat(MAX_LEN - 1));
        assert_eq!(accepted(&longest), longest);
    }

    #[test]
    fn everything_else_becomes_the_root() {
        for path in HOSTILE {
            assert_eq!(accepted(path), "/", "{path:?}");
        }
        assert_eq!(accepted(&format!("/{}", "a".repeat(MAX_LEN))), "/");
    }

    #[test]
    fn a_query_that_cannot_be_kept_is_left_out() {
        assert_eq!(accepted(&format!("/orders?{}", "a".repeat(MAX_LEN))), "/orders");
        assert_eq!(accepted("/orders?q=\u{e9}"), "/orders");
        assert_eq!(accepted("/orders?a\r\nSet-Cookie: a=b"), "/orders");
        assert_eq!(accepted("/oauth2/sign_out?a b"), "/");
    }

    #[test]
    fn a_route_can_allow_other_forms() {
        let paths = ReturnPaths { is_own: &is_own, is_routed: &|path| path.starts_with("/files/") };
        for path in ["/files/a%2Fb?c=d", "/files//a", "/files/a;b=c"] {
            assert_eq!((paths.accepted(path), accepted(path)), (path, "/"));
        }
        assert_eq!(paths.accepted("/files/a%2Fb c"), "/");
    }
}

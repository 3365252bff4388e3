//! `route.strip_prefix`: prefixes that a route cannot remove, and routes that reach the paths of others with it.

use super::check;
use super::warnings::check as check_warnings;

#[test]
fn a_prefix_is_the_beginning_of_the_path() {
    check(&[
        ("[[route]]\npath = \"/a/b\"\nstrip_prefix = \"/a/\"", "route[0].strip_prefix", (3, 16), "write \"/a\""),
        ("[[route]]\npath = \"/a\"\nstrip_prefix = \"/\"", "route[0].strip_prefix", (3, 16), "nothing to remove"),
        ("[[route]]\npath = \"/a\"\nstrip_prefix = \"/b\"", "route[0].strip_prefix", (3, 16), "does not begin with"),
        ("[[route]]\npath = \"/ab\"\nstrip_prefix = \"/a\"", "route[0].strip_prefix", (3, 16), "whole segments"),
        ("[[route]]\npath = \"/a\"\nstrip_prefix = \"/a/b\"", "route[0].strip_prefix", (3, 16), "does not begin with"),
        ("[[route]]\npath = \"/a\"\nstrip_prefix = \"\"", "route[0].strip_prefix", (3, 16), "does not begin with"),
        ("[[route]]\npath = \"/a\"\nstrip_prefix = \"a\"", "route[0].strip_prefix", (3, 16), "does not begin with"),
        (
            "[[route]]\npath = \"/a\"\nstrip_prefix = \"/a\"\npaths = \"double_slash\"",
            "route[0].strip_prefix",
            (3, 16),
            "paths = \"strict\"",
        ),
        (
            "[[route]]\npath = \"/a\"\nstrip_prefix = \"/a\"\n[route.request_headers]\n\
             set = [\"X-Forwarded-Prefix: /b\"]",
            "route[0].strip_prefix",
            (3, 16),
            "sets X-Forwarded-Prefix itself",
        ),
    ]);
}

#[test]
fn a_prefix_that_leads_to_protected_paths_is_reported() {
    check_warnings(&[
        (
            "[[route]]\npath = \"/\"\n[[route]]\npath = \"/open\"\npublic = true\nstrip_prefix = \"/open\"",
            &[("route[1].path", 6, "/open leads to paths of the backend that another route protects")],
        ),
        (
            "[[route]]\npath = \"/admin\"\nscopes = [\"admin\"]\n[[route]]\npath = \"/api\"\nstrip_prefix = \"/api\"",
            &[("route[1].path", 7, "every path below /")],
        ),
        (
            "[[route]]\npath = \"/api/admin\"\nscopes = [\"admin\"]\nstrip_prefix = \"/api\"\n[[route]]\n\
             path = \"/api\"\nstrip_prefix = \"/api\"",
            &[],
        ),
        (
            "[[route]]\npath = \"/admin\"\nscopes = [\"admin\"]\n[[route]]\npath = \"/api/open\"\npublic = true\n\
             strip_prefix = \"/api\"",
            &[],
        ),
    ]);
}

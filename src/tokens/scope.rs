//! The scopes of a token (RFC 6749 section 3.3). Pure.

/// Returns true for one scope (`scope-token`): printable ASCII without space, quote and backslash.
pub fn is_scope_token(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// Returns true for scopes that are separated by spaces.
pub fn are_scope_tokens(scopes: &str) -> bool {
    scopes.split(' ').filter(|scope| !scope.is_empty()).all(is_scope_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_have_only_the_characters_of_rfc_6749() {
        for (scopes, expected) in [
            ("", true),
            ("read", true),
            (" read  write ", true),
            ("!#[]~", true),
            ("read \"write\"", false),
            ("a\\b", false),
            ("read\twrite", false),
            ("\u{7f}", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(are_scope_tokens(scopes), expected, "{scopes:?}");
        }
        assert!(is_scope_token("read") && !is_scope_token("") && !is_scope_token("read write"));
    }
}

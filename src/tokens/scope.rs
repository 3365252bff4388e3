//! The scopes of a token (RFC 6749 section 3.3). Pure.

/// Returns true for one scope (`scope-token`): printable ASCII without space, quote and backslash.
pub fn is_scope_token(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// Returns true for scopes that are separated by spaces.
pub fn are_scope_tokens(scopes: &str) -> bool {
    scopes.split(' ').filter(|scope| !scope.is_empty()).all(is_scope_token)
}

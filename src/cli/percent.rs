//! Text inside the path or the query of a call.

/// Encodes all that a path segment or a query may not have (RFC 3986 section 2.3).
pub(super) fn percent_encode(segment: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    segment
        .bytes()
        .map(|byte| if is_unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

//! The text of refresh tokens and API keys: a prefix, the id of the family, `_`, a body in base62, and a checksum.
//!
//! The checksum lets secret scanners recognize such a text, and lets the gateway reject random text without a query.
//! Only what is in the body is security.

use crate::types::ids::{TokenId, from_base62, to_base62};

/// Length of a checksum, in characters.
const CHECKSUM_LEN: usize = 6;

/// Length of a text with a body of this many characters.
pub(super) const fn len(prefix: &str, body_len: usize) -> usize {
    prefix.len() + TokenId::LEN + 1 + body_len + CHECKSUM_LEN
}

/// `body_len`: how many characters `body` becomes.
pub(super) fn write(prefix: &str, id: TokenId, body: &[u8], body_len: usize) -> String {
    let text = format!("{prefix}{id}_{}", to_base62(body, body_len));
    let checksum = checksum(&text);
    text + &checksum
}

/// Checks prefix, length, alphabet and checksum. Returns the id and the body.
pub(super) fn parse<const N: usize>(text: &str, prefix: &str, body_len: usize) -> Option<(TokenId, [u8; N])> {
    let len = len(prefix, body_len);
    if text.len() != len || !text.is_ascii() {
        return None;
    }
    let (checked, found) = text.split_at(len - CHECKSUM_LEN);
    if found != checksum(checked) {
        return None;
    }
    let (id, body) = checked.strip_prefix(prefix)?.split_at(TokenId::LEN);
    Some((TokenId::parse(id)?, from_base62(body.strip_prefix('_')?)?))
}

fn checksum(text: &str) -> String {
    to_base62(&crc32fast::hash(text.as_bytes()).to_be_bytes(), CHECKSUM_LEN)
}

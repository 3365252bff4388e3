//! The checksum at the end of refresh tokens and API keys.

use crate::types::ids::to_base62;

/// Length of a checksum, in characters.
pub(super) const LEN: usize = 6;

pub(super) fn checksum(text: &str) -> String {
    to_base62(&crc32fast::hash(text.as_bytes()).to_be_bytes(), LEN)
}

//! Names of things: [`TokenId`], [`RequestId`]; and the fixed-width base62 they are written in.
//!
//! Base62 (`0-9A-Za-z`) is used because a double click selects it whole and no URL, header or shell has to quote it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Writes `bytes`, read as one big-endian number, as exactly `width` base62 digits.
///
/// `width` must be large enough for the number (22 for 16 bytes, 56 for 41, 6 for 4); digits beyond it are lost.
pub fn to_base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = ALPHABET[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// Reads base62 digits as one big-endian number of exactly `N` bytes. `None` on any other character and on overflow, so
/// that each value has one spelling only.
pub fn from_base62<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut number = [0u8; N];
    for character in text.bytes() {
        let mut carry = u32::try_from(ALPHABET.iter().position(|&digit| digit == character)?).ok()?;
        for byte in number.iter_mut().rev() {
            let value = u32::from(*byte) * 62 + carry;
            *byte = value as u8;
            carry = value >> 8;
        }
        if carry != 0 {
            return None;
        }
    }
    Some(number)
}

/// The public identifier of a token family: 128 random bits, written as 22 base62 characters. It stays the same through
/// every rotation, is the `sid` claim of each access token and a readable segment of each refresh token. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(u128);

impl TokenId {
    /// Characters of the written form.
    pub const LEN: usize = 22;

    pub fn random() -> Self {
        TokenId(u128::from_be_bytes(crate::secret::random()))
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        TokenId(u128::from_be_bytes(bytes))
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub const fn as_u128(self) -> u128 {
        self.0
    }

    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::LEN {
            return None;
        }
        from_base62(text).map(Self::from_bytes)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base62(&self.to_bytes(), Self::LEN))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

impl Serialize for TokenId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Names one request in the log, in the error body and towards the upstream: 32 hexadecimal digits.
///
/// It is a name: unique, but nothing may rest on it being unguessable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestId(u64, u64);

/// Gives out request ids: the first half is random for each source, the second counts. One source a worker, so that no
/// two cores write the same counter.
pub struct RequestIds {
    source: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub fn new() -> Self {
        RequestIds { source: u64::from_be_bytes(crate::secret::random()), count: AtomicU64::new(0) }
    }

    pub fn next(&self) -> RequestId {
        RequestId(self.source, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestId {
    /// The written form, without an allocation.
    pub fn as_hex(self) -> [u8; 32] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0u8; 32];
        for (half, number) in [self.0, self.1].into_iter().enumerate() {
            for (i, byte) in number.to_be_bytes().into_iter().enumerate() {
                text[half * 16 + i * 2] = HEX[usize::from(byte >> 4)];
                text[half * 16 + i * 2 + 1] = HEX[usize::from(byte & 15)];
            }
        }
        text
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_id_has_one_spelling() {
        for number in [0, 1, 61, 62, u128::MAX] {
            let id = TokenId(number);
            assert_eq!(TokenId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(TokenId::parse("zzzzzzzzzzzzzzzzzzzzzz"), None, "a number over 128 bits");
        assert_eq!(TokenId::parse("000000000000000000000"), None, "too short");
        assert_eq!(TokenId::parse("00000000000000000000-0"), None, "another alphabet");
    }

    #[test]
    fn a_request_id_prints_as_its_hex() {
        let ids = RequestIds::new();
        let id = ids.next();
        assert_eq!(id.to_string().as_bytes(), id.as_hex());
        assert_ne!(ids.next(), id);
    }
}

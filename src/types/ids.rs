//! [`TokenId`] and [`RequestId`], base62 with a fixed width, and hexadecimal digits.
//!
//! Base62 (`0-9A-Za-z`) needs no quoting in URLs, headers and shells, and a double click selects the whole id.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The value of each byte as a digit, or [`NO_DIGIT`].
static VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};
const NO_DIGIT: u8 = u8::MAX;

/// The two hexadecimal digits of each byte.
static HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Writes two hexadecimal digits for each byte.
pub fn write_hex(bytes: &[u8], text: &mut [u8]) {
    for (digits, byte) in text.chunks_exact_mut(2).zip(bytes) {
        digits.copy_from_slice(&HEX[usize::from(*byte)]);
    }
}

/// A long number is stored as limbs of 32 bits, the least significant first. Digits are converted five at a time: 62^5
/// fits in a limb, so that each step is one 64-bit multiplication, or one division by a constant.
const GROUP: usize = 5;
const GROUP_BASE: u64 = 62u64.pow(GROUP as u32);

/// The limbs of the longest number, a refresh token of 41 bytes.
const MAX_LIMBS: usize = 11;

/// Writes `bytes`, one big-endian number, as exactly `width` base62 digits.
///
/// `bytes` has at most 44 bytes. `width` must be large enough: 22 for 16 bytes, 56 for 41, 6 for 4. Higher digits are
/// lost.
pub fn to_base62(bytes: &[u8], width: usize) -> String {
    let mut digits = vec![b'0'; width];
    write_base62(bytes, &mut digits);
    digits.into_iter().map(char::from).collect()
}

/// As [`to_base62`], into `digits`. Allocates nothing: the access log writes the id of a session for each request.
fn write_base62(bytes: &[u8], digits: &mut [u8]) {
    let mut limbs = [0; MAX_LIMBS];
    let mut used = 0;
    for (limb, chunk) in limbs.iter_mut().zip(bytes.rchunks(4)) {
        *limb = chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        used += 1;
    }
    for group in digits.rchunks_mut(GROUP) {
        let mut remainder = 0;
        for limb in limbs[..used].iter_mut().rev() {
            let value = remainder << 32 | *limb;
            *limb = value / GROUP_BASE;
            remainder = value % GROUP_BASE;
        }
        // Each group makes the number smaller, so that leading limbs become zero.
        if used > 0 && limbs[used - 1] == 0 {
            used -= 1;
        }
        for digit in group.iter_mut().rev() {
            *digit = ALPHABET[(remainder % 62) as usize];
            remainder /= 62;
        }
    }
}

/// Reads base62 digits as one big-endian number of exactly `N` bytes. `None` for other characters and on overflow, so
/// that each value has exactly one text.
pub fn from_base62<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut limbs = vec![0u64; N.div_ceil(4)];
    for group in text.as_bytes().chunks(GROUP) {
        let mut carry = 0;
        let mut factor = 1;
        for digit in group {
            let value = VALUES[usize::from(*digit)];
            if value == NO_DIGIT {
                return None;
            }
            carry = carry * 62 + u64::from(value);
            factor *= 62;
        }
        for limb in &mut limbs {
            let value = *limb * factor + carry;
            *limb = value & 0xffff_ffff;
            carry = value >> 32;
        }
        if carry != 0 {
            return None;
        }
    }
    let mut number = [0; N];
    for (bytes, limb) in number.rchunks_mut(4).zip(&mut limbs) {
        for byte in bytes.iter_mut().rev() {
            *byte = *limb as u8;
            *limb >>= 8;
        }
    }
    // A rest is an overflow, because the highest limb may have fewer than four bytes.
    limbs.iter().all(|limb| *limb == 0).then_some(number)
}

/// The public id of a family: 128 random bits, written as 22 base62 characters. It does not change with a rotation. It
/// is the `sid` claim of access tokens and a segment of refresh tokens. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(u128);

impl TokenId {
    /// Number of characters of the text.
    pub const LEN: usize = 22;

    pub fn random() -> Self {
        TokenId(u128::from_be_bytes(crate::types::secret::random()))
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
        let mut digits = [b'0'; Self::LEN];
        write_base62(&self.to_bytes(), &mut digits);
        f.write_str(str::from_utf8(&digits).map_err(|_| fmt::Error)?)
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

impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        TokenId::parse(&text).ok_or_else(|| de::Error::custom("this is no tokenId"))
    }
}

/// The id of one request in the log, in error bodies and in requests to the backend: 32 hexadecimal digits.
///
/// It is unique but guessable, so it must not be used as a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestId(u64, u64);

/// Creates request ids: the first half is random for each source, the second half is a counter. Each worker has its own
/// source, so that no two cores write the same counter.
pub struct RequestIds {
    source: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub fn new() -> Self {
        RequestIds { source: u64::from_be_bytes(crate::types::secret::random()), count: AtomicU64::new(0) }
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
    /// The text, without an allocation.
    pub fn as_hex(self) -> [u8; 32] {
        let mut text = [0u8; 32];
        let bytes = (u128::from(self.0) << 64 | u128::from(self.1)).to_be_bytes();
        write_hex(&bytes, &mut text);
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
        // Hexadecimal digits are always UTF-8.
        f.write_str(str::from_utf8(&self.as_hex()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_id_has_exactly_one_text() {
        for number in [0, 1, 61, 62, u128::MAX] {
            let id = TokenId(number);
            assert_eq!(TokenId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(TokenId::parse("zzzzzzzzzzzzzzzzzzzzzz"), None, "a number over 128 bits");
        assert_eq!(TokenId::parse("000000000000000000000"), None, "too short");
        assert_eq!(TokenId::parse("00000000000000000000-0"), None, "another alphabet");
    }

    /// Clients keep tokens in this format, so it must never change.
    #[test]
    fn the_text_of_a_number_never_changes() {
        let counted: [u8; 41] = std::array::from_fn(|place| place as u8);
        for (bytes, text) in [
            (&[0xde, 0xad, 0xbe, 0xef][..], "44pZgF"),
            (&[0xff; 16], "7n42DGM5Tflk9n8mt7Fhc7"),
            (&counted, "0005FfjrxHBTmRumDUTSX7Tw9ULXTQQljDyemA4Pbv61G0Il6SQd7FCC"),
            (&[0xff; 41], "1Qr4vLHcKdTV9mu9n3bOexdMT4qr2NwB1MCKIYPE5t1WlL2OecFNbAC7"),
        ] {
            assert_eq!(to_base62(bytes, text.len()), text);
        }
        assert_eq!(from_base62("0005FfjrxHBTmRumDUTSX7Tw9ULXTQQljDyemA4Pbv61G0Il6SQd7FCC"), Some(counted));
        assert_eq!(from_base62("1Qr4vLHcKdTV9mu9n3bOexdMT4qr2NwB1MCKIYPE5t1WlL2OecFNbAC7"), Some([0xff; 41]));
        assert_eq!(from_base62::<41>("1Qr4vLHcKdTV9mu9n3bOexdMT4qr2NwB1MCKIYPE5t1WlL2OecFNbAC8"), None, "one more");
        assert_eq!(from_base62::<4>("4gfFC4"), None, "one more than four bytes can hold");
    }

    #[test]
    fn a_request_id_prints_as_its_hex() {
        let ids = RequestIds::new();
        let id = ids.next();
        assert_eq!(id.to_string().as_bytes(), id.as_hex());
        assert_ne!(ids.next(), id);
    }
}

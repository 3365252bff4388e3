//! A bearer token as the client sent it, and which bytes can be a token at all.

use crate::tokens::jwt::decode_segment;
use crate::types::reject::{Reason, Reject};

/// How the client presents a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScheme {
    /// `Authorization: Bearer …` (RFC 6750)
    Bearer,
    /// `Authorization: DPoP …` (RFC 9449 section 7.1)
    Dpop,
    /// Elsewhere than in `Authorization`.
    Other,
}

/// A token as the client sent it. It has no `Display` and no `Debug`: it must not reach a log.
#[derive(Clone, Copy)]
pub struct BearerToken<'r>(&'r [u8], TokenScheme);

impl<'r> BearerToken<'r> {
    /// `max_size`: `limits.token_size`.
    pub(super) fn new(bytes: &'r [u8], scheme: TokenScheme, max_size: usize) -> Result<Self, Reject> {
        check_size(bytes, max_size).map(|()| BearerToken(bytes, scheme))
    }

    /// Does not check the size again.
    pub(super) const fn from_checked(bytes: &'r [u8], scheme: TokenScheme) -> Self {
        BearerToken(bytes, scheme)
    }

    /// A token that is a parameter of a call (introspection), not the credential of the request.
    pub fn from_text(text: &'r str, max_size: usize) -> Result<Self, Reject> {
        BearerToken::new(text.as_bytes(), TokenScheme::Other, max_size)
    }

    pub fn scheme(self) -> TokenScheme {
        self.1
    }

    /// The bytes as sent, not checked: enough to look a token up in the cache.
    pub fn as_bytes(self) -> &'r [u8] {
        self.0
    }

    /// The token as text, if its characters are those of a token. Call it before the token is parsed, but not for a
    /// cached token: to check each of some 700 characters would double the cost of the look-up.
    pub fn text(self) -> Result<&'r str, Reject> {
        let malformed = || Reject::new(Reason::MalformedToken, "the token has characters that a token cannot have");
        let text = std::str::from_utf8(self.0).map_err(|_| malformed())?;
        if text.contains(',') {
            return Err(Reject::new(Reason::SeveralTokens, "a comma inside Authorization"));
        }
        if is_sendable(text) { Ok(text) } else { Err(malformed()) }
    }
}

fn check_size(token: &[u8], max_size: usize) -> Result<(), Reject> {
    if token.len() > max_size {
        return Err(Reject::new(Reason::TokenTooLarge, format!("{} bytes, at most {max_size}", token.len())));
    }
    Ok(())
}

/// Decodes a token that the client encoded in base64url once more.
pub(super) fn decode_base64url(token: &[u8], max_size: usize) -> Result<Vec<u8>, Reject> {
    let bytes = std::str::from_utf8(token).ok().and_then(decode_segment);
    let bytes = bytes.ok_or_else(|| Reject::new(Reason::MalformedToken, "not base64url without padding"))?;
    check_size(&bytes, max_size)?;
    Ok(bytes)
}

/// Returns true if the text can be sent as a bearer token (`b64token` of RFC 6750 section 2.1).
pub fn is_sendable(token: &str) -> bool {
    !token.is_empty() && token.bytes().fold(true, |all, byte| all & is_sendable_byte(byte))
}

/// Without branches: a token has some 700 characters, and the processor compares 16 of them at once.
const fn is_sendable_byte(byte: u8) -> bool {
    let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    // `-`, `.`, `/` and the digits follow each other.
    let is_digit_or_mark = byte.wrapping_sub(b'-') <= b'9' - b'-';
    is_letter | is_digit_or_mark | (byte == b'_') | (byte == b'~') | (byte == b'+') | (byte == b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_only_bytes_of_rfc_6750() {
        let sendable: String = (0..=0x7f).map(char::from).filter(|one| is_sendable(&one.to_string())).collect();
        assert_eq!(sendable, "+-./0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~");
        assert!((0x80..=0xff).all(|byte| !is_sendable_byte(byte)) && !is_sendable(""));
        let among_others = |byte: char| format!("{}{byte}", "a".repeat(40));
        assert!(is_sendable(&among_others('_')) && !is_sendable(&among_others(' ')));
    }
}

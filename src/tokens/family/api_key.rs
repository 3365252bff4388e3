//! The API key: a credential of a program, which lives until its expiry and is never refreshed.
//!
//! ```text
//! bwk_ 4fQx…22…9aZ _ base62(secret:32)…43… CRC-32…6…
//!      key id
//! ```
//!
//! A key is a family without refresh tokens, so that it is listed, revoked and audited as one. The store keeps only a
//! hash of the secret. A fast hash is right for 256 random bits, which cannot be guessed.
//!
//! The checksum lets secret scanners recognize a key ([`SCANNER_PATTERN`]), and lets the gateway reject random text
//! without a query. Only the secret is security.

use std::fmt;

use super::token_text;
use crate::types::ids::TokenId;
use crate::types::secret;

/// How every API key begins, and no other credential.
pub const PREFIX: &str = "bwk_";
const SECRET_LEN: usize = 43;
/// Length of an API key: 76 characters.
pub const LEN: usize = token_text::len(PREFIX, SECRET_LEN);

/// The regular expression that finds an API key in text.
pub const SCANNER_PATTERN: &str = "bwk_[0-9A-Za-z]{22}_[0-9A-Za-z]{49}";

/// A well-formed API key. [`PresentedKey::matches`] checks it against the hash in the store.
pub struct PresentedKey {
    pub id: TokenId,
    secret: [u8; 32],
}

impl PresentedKey {
    /// Checks prefix, length, alphabet and checksum. Needs no store.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = token_text::parse(text, PREFIX, SECRET_LEN)?;
        Some(PresentedKey { id, secret })
    }

    /// Returns true if the hash is that of this key. Takes the same time wherever they differ.
    pub fn matches(&self, stored: &[u8; 32]) -> bool {
        secret::equal(&hash(self.id, &self.secret), stored)
    }
}

/// Without the secret, and there is no `Display`: the key must not reach a log.
impl fmt::Debug for PresentedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedKey({})", self.id)
    }
}

/// A new key with this id: its text, which only its owner gets, and the hash for the store.
pub fn generate(id: TokenId) -> (String, [u8; 32]) {
    let secret = secret::random();
    (text(id, &secret), hash(id, &secret))
}

fn text(id: TokenId, secret: &[u8; 32]) -> String {
    token_text::write(PREFIX, id, secret, SECRET_LEN)
}

/// With the id, so that a hash is worth nothing in the row of another key.
fn hash(id: TokenId, secret: &[u8; 32]) -> [u8; 32] {
    secret::digest(&[b"bearward API key v1", &id.to_bytes(), secret])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TokenId = TokenId::from_bytes([7; 16]);

    #[test]
    fn a_key_is_found_again_by_its_id_and_secret() {
        let (text, stored) = generate(ID);
        let presented = PresentedKey::parse(&text).expect("well formed");
        assert!(text.starts_with(PREFIX) && text.len() == LEN);
        assert!(presented.id == ID && presented.matches(&stored));
        let (_, another) = generate(ID);
        assert!(!presented.matches(&another));
        assert!(!presented.matches(&hash(TokenId::from_bytes([8; 16]), &presented.secret)));
        assert_eq!(format!("{presented:?}"), format!("PresentedKey({ID})"));
    }

    #[test]
    fn the_format_of_a_key_stays() {
        let text = text(ID, &[255; 32]);
        assert_eq!(text, "bwk_0DG9mkOv2l6AkSp3WsPxY7_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp13dB0qV");
    }

    #[test]
    fn each_wrong_character_is_noticed_without_a_store() {
        let (text, _) = generate(ID);
        for place in 0..text.len() {
            let other = if text.as_bytes()[place] == b'x' { "y" } else { "x" };
            let wrong = format!("{}{other}{}", &text[..place], &text[place + 1..]);
            assert!(PresentedKey::parse(&wrong).is_none(), "{wrong}");
        }
        for wrong in ["", "bwk_", &text[1..], &text[..LEN - 1], &format!("{text}x"), &"é".repeat(LEN / 2)] {
            assert!(PresentedKey::parse(wrong).is_none(), "{wrong}");
        }
    }
}

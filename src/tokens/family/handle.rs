//! The handle of a login at a provider: what the cookie of its browser holds. The tokens stay in the gateway.
//!
//! ```text
//! bws_ 4fQx…22…9aZ _ base62(root:1 ‖ MAC:32)…45… CRC-32…6…
//!      tokenId
//! ```
//!
//! MAC = HMAC-SHA-256(K, "bws" ‖ root ‖ tokenId) with K = HKDF-SHA-256(root secret, salt of the family): as for a
//! refresh token, nothing in the store opens a login. A handle does not change while its login lives, and each login
//! has another one.

use std::fmt;

use super::record::Family;
use super::refresh_token::Roots;
use super::token_text;
use crate::types::ids::TokenId;
use crate::types::secret::{self, Secret};

/// How every handle begins, and no other credential.
pub const PREFIX: &str = "bws_";
const BODY_LEN: usize = 45;
/// Length of a handle: 78 characters.
pub const LEN: usize = token_text::len(PREFIX, BODY_LEN);

/// The regular expression that finds a handle in text.
pub const SCANNER_PATTERN: &str = "bws_[0-9A-Za-z]{22}_[0-9A-Za-z]{51}";

/// A well-formed handle. [`PresentedHandle::is_genuine`] checks it against its family.
pub struct PresentedHandle {
    pub id: TokenId,
    root: u8,
    mac: [u8; 32],
}

impl PresentedHandle {
    /// Checks prefix, length, alphabet and checksum. Needs no key and no store.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, body): (_, [u8; 33]) = token_text::parse(text, PREFIX, BODY_LEN)?;
        let (root, mac) = body.split_first()?;
        Some(PresentedHandle { id, root: *root, mac: mac.try_into().ok()? })
    }

    /// Returns true if the gateway created this handle for this family. Takes the same time wherever they differ.
    pub fn is_genuine(&self, family: &Family, roots: &Roots) -> bool {
        let Some(root) = roots.find(self.root) else { return false };
        family.id == self.id
            && family.key_hash.is_none()
            && secret::equal(&mac(root, self.root, family.id, &family.salt), &self.mac)
    }
}

/// Without the MAC, and there is no `Display`: the handle must not reach a log.
impl fmt::Debug for PresentedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedHandle({})", self.id)
    }
}

/// The handle of a family. `None` if its root secret is missing.
pub fn of(family: &Family, roots: &Roots) -> Option<String> {
    let root = roots.find(family.root)?;
    let mac = mac(root, family.root, family.id, &family.salt);
    Some(token_text::write(PREFIX, family.id, &[[family.root].as_slice(), &mac].concat(), BODY_LEN))
}

fn mac(root: &Secret, number: u8, id: TokenId, salt: &[u8; 32]) -> [u8; 32] {
    let key = secret::derive(root, salt, "bearward login handle v1");
    secret::mac(&key, &[b"bws", &[number], &id.to_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::UnixTime;

    fn roots(number: u8, byte: u8) -> Roots {
        Roots::new((number, Secret::new(vec![byte; 32])), vec![])
    }

    fn family() -> Family {
        Family::sample(UnixTime::from_secs(1_000))
    }

    #[test]
    fn a_handle_opens_only_its_own_family() {
        let text = of(&family(), &roots(1, 7)).expect("root 1 is known");
        assert!(text.starts_with(PREFIX) && text.len() == LEN);
        let presented = PresentedHandle::parse(&text).expect("well formed");
        assert!(presented.is_genuine(&family(), &roots(1, 7)));
        for (family, roots) in [
            (Family { salt: [1; 32], ..family() }, roots(1, 7)),
            (Family { id: TokenId::from_bytes([8; 16]), ..family() }, roots(1, 7)),
            (Family { key_hash: Some([0; 32]), ..family() }, roots(1, 7)),
            (family(), roots(1, 8)),
            (family(), roots(2, 7)),
        ] {
            assert!(!presented.is_genuine(&family, &roots), "{family:?}");
        }
        assert_eq!(format!("{presented:?}"), format!("PresentedHandle({})", family().id));
        assert!(of(&family(), &roots(2, 7)).is_none());
    }

    #[test]
    fn each_wrong_character_is_noticed_without_a_store() {
        let text = of(&family(), &roots(1, 7)).expect("root 1 is known");
        for place in 0..text.len() {
            let other = if text.as_bytes()[place] == b'x' { "y" } else { "x" };
            let wrong = format!("{}{other}{}", &text[..place], &text[place + 1..]);
            assert!(PresentedHandle::parse(&wrong).is_none(), "{wrong}");
        }
        for wrong in ["", "bws_", &text[1..], &text[..LEN - 1], &format!("{text}x"), &format!(" {text}")] {
            assert!(PresentedHandle::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_refresh_token_is_no_handle() {
        let token = super::super::refresh_token::current(&family(), &roots(1, 7)).expect("root 1 is known");
        assert!(!token.starts_with(PREFIX) && PresentedHandle::parse(&token).is_none());
    }
}

//! The refresh token: opaque to clients, and never stored. It names its family, so that the gateway finds the row.
//!
//! ```text
//! bwr1_ 4fQx…22…9aZ _ base62(root:1 ‖ generation:8 ‖ MAC:32)…56… CRC-32…6…
//!       tokenId
//! ```
//!
//! MAC = HMAC-SHA-256(K, "bwr1" ‖ root ‖ tokenId ‖ generation) with K = HKDF-SHA-256(root secret, salt of the family).
//! To forge a token, an attacker needs both the root secret, which is outside the store, and the salt, which is in it.
//! The token of a generation can be derived again, so that a client that lost a response gets the same token, and no
//! copy of it is kept.
//!
//! The checksum lets secret scanners recognize a token ([`SCANNER_PATTERN`]), and lets the gateway reject random text
//! without a query. Only the MAC is security.

use std::fmt;

use super::record::Family;
use super::token_text;
use crate::types::ids::TokenId;
use crate::types::secret::{self, Secret};

/// How every refresh token begins.
pub const PREFIX: &str = "bwr1_";
const BODY_LEN: usize = 56;
/// Length of a refresh token: 90 characters.
pub const LEN: usize = token_text::len(PREFIX, BODY_LEN);

/// The regular expression that finds a refresh token in text.
pub const SCANNER_PATTERN: &str = "bwr1_[0-9A-Za-z]{22}_[0-9A-Za-z]{62}";

/// A well-formed refresh token. [`PresentedToken::is_genuine`] checks it against its family.
pub struct PresentedToken {
    pub token_id: TokenId,
    pub root: u8,
    pub generation: u64,
    mac: [u8; 32],
}

impl PresentedToken {
    /// Checks prefix, length, alphabet and checksum. Needs no key and no store.
    pub fn parse(text: &str) -> Option<Self> {
        let (token_id, body): (_, [u8; 41]) = token_text::parse(text, PREFIX, BODY_LEN)?;
        let (root, rest) = body.split_first()?;
        let (generation, mac) = rest.split_at(8);
        Some(PresentedToken {
            token_id,
            root: *root,
            generation: u64::from_be_bytes(generation.try_into().ok()?),
            mac: mac.try_into().ok()?,
        })
    }

    /// Returns true if the gateway created this token for this family.
    pub fn is_genuine(&self, family: &Family, roots: &Roots) -> bool {
        let Some(root) = roots.find(self.root) else { return false };
        family.id == self.token_id
            && family.key_hash.is_none()
            && secret::equal(&mac(root, self.root, family.id, &family.salt, self.generation), &self.mac)
    }
}

/// Without the MAC, and there is no `Display`: the token must not reach a log.
impl fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedToken({}, generation {})", self.token_id, self.generation)
    }
}

/// The root secrets with their numbers. New tokens use the newest; older secrets still verify.
pub struct Roots(Vec<(u8, Secret)>);

impl Roots {
    /// `secrets` from oldest to newest; at least one.
    pub fn new(first: (u8, Secret), newer: Vec<(u8, Secret)>) -> Self {
        let mut secrets = vec![first];
        secrets.extend(newer);
        Roots(secrets)
    }

    /// Without any secret: nothing verifies, and nothing is issued.
    pub fn none() -> Self {
        Roots(Vec::new())
    }

    /// The number of the newest root secret.
    pub fn newest(&self) -> u8 {
        self.0.last().map_or(0, |(number, _)| *number)
    }

    /// With this one as the newest, if it is among them.
    pub fn with_newest(mut self, number: u8) -> Self {
        self.0.sort_by_key(|(known, _)| *known == number);
        self
    }

    /// Each number with a keyed hash of its secret, from oldest to newest.
    pub fn checks(&self) -> Vec<(u8, [u8; 32])> {
        let check = |(number, secret): &(u8, Secret)| (*number, secret::mac(secret, &[b"bearward root check v1"]));
        self.0.iter().map(check).collect()
    }

    /// The newest root secret, to derive other keys from it.
    pub fn newest_secret(&self) -> Option<&Secret> {
        self.0.last().map(|(_, secret)| secret)
    }

    /// The root secret with this number.
    pub fn find(&self, number: u8) -> Option<&Secret> {
        self.0.iter().find(|(known, _)| *known == number).map(|(_, secret)| secret)
    }
}

/// The refresh token of the newest generation, the same bytes each time. `None` if its root secret is missing.
pub fn current(family: &Family, roots: &Roots) -> Option<String> {
    let root = roots.find(family.root)?;
    let mac = mac(root, family.root, family.id, &family.salt, family.generation);
    let body = [[family.root].as_slice(), &family.generation.to_be_bytes(), &mac].concat();
    Some(token_text::write(PREFIX, family.id, &body, BODY_LEN))
}

fn mac(root: &Secret, number: u8, id: TokenId, salt: &[u8; 32], generation: u64) -> [u8; 32] {
    let key = secret::derive(root, salt, "bearward refresh token v1");
    secret::mac(&key, &[b"bwr1", &[number], &id.to_bytes(), &generation.to_be_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(numbers: [u8; 3]) -> Roots {
        let secret = |number: u8| (number, Secret::new(vec![number; 32]));
        let [first, second, third] = numbers.map(secret);
        Roots::new(first, vec![second, third])
    }

    #[test]
    fn the_newest_root_is_chosen_among_the_known_ones() {
        for (newest, order) in [(1, [2, 3, 1]), (2, [1, 3, 2]), (3, [1, 2, 3]), (4, [1, 2, 3])] {
            let chosen = roots([1, 2, 3]).with_newest(newest);
            let numbers: Vec<u8> = chosen.checks().into_iter().map(|(number, _)| number).collect();
            assert_eq!((chosen.newest(), numbers), (order[2], order.to_vec()));
        }
    }

    #[test]
    fn each_root_has_a_keyed_hash_as_its_check() {
        let checks = roots([1, 2, 3]).checks();
        let check = |number: u8| secret::mac(&Secret::new(vec![number; 32]), &[b"bearward root check v1"]);
        assert_eq!(checks, [1, 2, 3].map(|number| (number, check(number))));
    }

    #[test]
    fn a_refresh_token_is_shown_without_its_mac() {
        let token_id = TokenId::parse(&"0".repeat(TokenId::LEN)).expect("an id");
        let token = PresentedToken { token_id, root: 1, generation: 2, mac: [7; 32] };
        assert_eq!(format!("{token:?}"), format!("PresentedToken({token_id}, generation 2)"));
    }
}

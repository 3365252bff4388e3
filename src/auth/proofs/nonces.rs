//! Nonces for proofs (RFC 9449 section 8): the gateway says when a proof was made, so that the clocks of clients do not
//! matter.
//!
//! A nonce has a time and a MAC, and nothing is stored. The key of the MAC is random and known to this process alone,
//! so that a proof with a nonce is good at one process only: a replay at another gateway, or after a restart, gets a
//! new nonce instead. A process that takes over gets the key, together with the proofs that were used.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;

use crate::types::clock::UnixTime;
use crate::types::secret::{self, Secret};

/// How many seconds one nonce is given out.
const STEP: u64 = 30;

/// Version, time, and half of a MAC.
const SIZE: usize = 1 + 8 + MAC;
const MAC: usize = 16;
const VERSION: u8 = 1;

/// What makes the nonces of one process.
#[derive(Clone, PartialEq, Eq)]
pub struct NonceKey {
    pub key: [u8; 32],
    /// When the process began, in seconds.
    pub began: u64,
}

impl fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NonceKey(since {})", self.began)
    }
}

pub struct Nonces {
    key: Secret,
    /// When this process began, in seconds.
    began: u64,
}

/// A nonce of this process that is still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownNonce {
    /// When it was made, in seconds. A proof with it is not older.
    pub made: u64,
    /// The client should use the next one.
    pub is_old: bool,
}

impl Nonces {
    pub fn new(began: UnixTime) -> Self {
        Nonces { key: Secret::random(32), began: began.as_secs() }
    }

    /// Continues those of another process.
    pub fn taken_over(NonceKey { key, began }: &NonceKey) -> Self {
        Nonces { key: Secret::new(key.to_vec()), began: *began }
    }

    /// For the process that takes over.
    pub fn hand_over(&self) -> Option<NonceKey> {
        Some(NonceKey { key: self.key.expose().try_into().ok()?, began: self.began })
    }

    /// The nonce of this moment.
    pub fn current(&self, now: UnixTime) -> HeaderValue {
        let made = (now.as_secs() / STEP * STEP).max(self.began).to_be_bytes();
        let text = URL_SAFE_NO_PAD.encode([&[VERSION][..], &made, &self.mac(made)].concat());
        // Base64url is always a valid header value.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }

    /// `None` for a nonce that is not of this process, or older than the one before the current one.
    pub fn check(&self, text: &str, now: UnixTime) -> Option<KnownNonce> {
        let bytes: [u8; SIZE] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let (version, rest) = bytes.split_first()?;
        let (made, mac) = rest.split_first_chunk::<8>()?;
        if *version != VERSION || !secret::equal(mac, &self.mac(*made)) {
            return None;
        }
        let made = u64::from_be_bytes(*made);
        let step = made / STEP;
        let current = now.as_secs() / STEP;
        let is_good = step == current || step + 1 == current;
        is_good.then_some(KnownNonce { made, is_old: step != current })
    }

    fn mac(&self, made: [u8; 8]) -> [u8; MAC] {
        let mac = secret::mac(&self.key, &[b"dpop nonce", &made]);
        mac.first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_nonce_is_good_in_its_step_and_the_next_one() {
        let began = UnixTime::from_secs(1_000_010);
        let nonces = Nonces::new(began);
        let text = nonces.current(began);
        let text = text.to_str().expect("ASCII");
        // Steps begin at 999_990, 1_000_020 and 1_000_050.
        for (after, expected) in [
            (0, Some(KnownNonce { made: 1_000_010, is_old: false })),
            (9, Some(KnownNonce { made: 1_000_010, is_old: false })),
            (10, Some(KnownNonce { made: 1_000_010, is_old: true })),
            (39, Some(KnownNonce { made: 1_000_010, is_old: true })),
            (40, None),
        ] {
            assert_eq!(nonces.check(text, began + Duration::from_secs(after)), expected, "{after}");
        }
        assert_eq!(nonces.check(text, began - Duration::from_secs(30)), None, "the clock was set back");
    }

    /// A client sees nonces, so that it could guess a short key, and make its own ones.
    #[test]
    fn each_process_has_another_long_key() {
        let now = UnixTime::from_secs(1_000_010);
        let known: HashSet<_> = (0..10_000).map(|_| Nonces::new(now).current(now)).collect();
        assert_eq!(known.len(), 10_000);
        assert!(Nonces::new(now).hand_over().is_some(), "it has 32 bytes");
    }

    #[test]
    fn only_the_process_that_made_a_nonce_knows_it() {
        let now = UnixTime::from_secs(1_000_010);
        let nonces = Nonces::new(now);
        let other = Nonces::new(now);
        let text = nonces.current(now).to_str().expect("ASCII").to_owned();
        assert!(nonces.check(&text, now).is_some() && other.check(&text, now).is_none());
        let bytes = URL_SAFE_NO_PAD.decode(&text).expect("base64url");
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert_eq!(nonces.check(&URL_SAFE_NO_PAD.encode(changed), now), None, "byte {place}");
        }
        for changed in ["", &text[1..], &format!("{text}A"), &format!("{text}=")] {
            assert_eq!(nonces.check(changed, now), None, "{changed}");
        }
    }
}

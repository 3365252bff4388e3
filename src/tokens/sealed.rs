//! Values that the gateway gives away and gets back: sealed texts. It stores none of them, so that nothing that a
//! stranger begins fills its memory or its store (CVE-2021-22119). Pure.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::secret::{self, Secret};

/// A kind of sealed text. No text of one kind opens as another one.
pub struct SealedKind {
    /// How each text begins.
    pub prefix: &'static str,
    /// What the key is derived for.
    pub purpose: &'static str,
}

impl SealedKind {
    /// The prefix, and in base64url the number of the root secret and the sealed value. `name` is authenticated with
    /// it. `None` if there is no root secret.
    pub fn seal<T: Serialize>(&self, name: &str, value: &T, roots: &Roots) -> Option<String> {
        let plain = serde_json::to_vec(value).ok()?;
        let sealed = secret::seal(&self.key(roots.newest_secret()?), name, &plain)?;
        let encoded = URL_SAFE_NO_PAD.encode([&[roots.newest()], sealed.as_slice()].concat());
        Some(format!("{}{encoded}", self.prefix))
    }

    /// Reverses [`SealedKind::seal`]. `None` for any text that no gateway of this store wrote under this name.
    pub fn open<T: DeserializeOwned>(&self, name: &str, text: &str, roots: &Roots) -> Option<T> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(self.prefix)?).ok()?;
        let (root, sealed) = bytes.split_first()?;
        let plain = secret::unseal(&self.key(roots.find(*root)?), name, sealed)?;
        serde_json::from_slice(plain.expose()).ok()
    }

    fn key(&self, root: &Secret) -> Secret {
        secret::derive(root, b"", self.purpose)
    }
}

/// Returns true from `begun` on until `lifetime` has passed. Clocks of replicas may differ by `clock_skew`: a clock
/// that was set back by more keeps no text for longer.
pub fn is_current(begun: UnixTime, lifetime: Duration, clock_skew: Duration, now: UnixTime) -> bool {
    begun <= now + clock_skew && now.since(begun) <= lifetime
}

/// What a sealed text keeps of a value that comes back beside it: its SHA-256 in base64url.
pub fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(secret::digest(&[text.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: SealedKind = SealedKind { prefix: "bwx1_", purpose: "test v1" };

    fn roots(number: u8, byte: u8) -> Roots {
        Roots::new((number, Secret::new(vec![byte; 32])), vec![])
    }

    #[test]
    fn a_text_opens_only_as_what_it_is() {
        let text = KIND.seal("a", &("value".to_owned(), 7), &roots(1, 7)).expect("sealed");
        let opened = |kind: &SealedKind, name, text: &str, roots: &Roots| kind.open::<(String, u64)>(name, text, roots);
        assert_eq!(opened(&KIND, "a", &text, &roots(1, 7)), Some(("value".to_owned(), 7)));
        assert_eq!(opened(&KIND, "b", &text, &roots(1, 7)), None, "another name");
        assert_eq!(opened(&KIND, "a", &text, &roots(1, 8)), None, "another root secret");
        assert_eq!(opened(&KIND, "a", &text, &roots(2, 7)), None, "an unknown number");
        let other = SealedKind { purpose: "test v2", ..KIND };
        assert_eq!(opened(&other, "a", &text, &roots(1, 7)), None, "another kind");
        for place in 0..text.len() {
            let changed = if text.as_bytes()[place] == b'A' { "B" } else { "A" };
            let wrong = format!("{}{changed}{}", &text[..place], &text[place + 1..]);
            assert_eq!(opened(&KIND, "a", &wrong, &roots(1, 7)), None, "place {place}");
        }
    }
}

//! Keys of TLS session tickets in the store: random, sealed under a root secret as the signing keys are.

use crate::tokens::family::refresh_token::Roots;
use crate::types::secret::{self, Secret};

/// A sealed key, for one window of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTicketKey {
    /// The number of the window since 1970.
    pub period: u64,
    /// The number of the root secret that seals it.
    pub root: u8,
    pub sealed: Vec<u8>,
}

impl StoredTicketKey {
    /// A new key. `None` if it cannot be sealed.
    pub fn create(period: u64, roots: &Roots) -> Option<Self> {
        let sealed = secret::seal(&sealing_key(roots.newest_secret()?), &name(period), &secret::random::<32>())?;
        Some(StoredTicketKey { period, root: roots.newest(), sealed })
    }

    /// `None` if another root secret seals it, or if it was changed in the store.
    pub fn open(&self, roots: &Roots) -> Option<Secret> {
        secret::unseal(&sealing_key(roots.find(self.root)?), &name(self.period), &self.sealed)
    }
}

fn sealing_key(root: &Secret) -> Secret {
    secret::derive(root, b"", "bearward ticket keys v1")
}

/// Part of the encryption, so that an old key cannot be passed off as a new one.
fn name(period: u64) -> String {
    format!("ticket key {period}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_key_opens_only_with_its_root_and_window() {
        let roots = |byte| Roots::new((1, Secret::new(vec![byte; 32])), vec![]);
        let stored = StoredTicketKey::create(7, &roots(1)).expect("sealed");
        assert_eq!(stored.open(&roots(1)).expect("opened").expose().len(), 32);
        assert!(stored.open(&roots(2)).is_none());
        assert!(StoredTicketKey { period: 8, ..stored.clone() }.open(&roots(1)).is_none());
        assert_ne!(StoredTicketKey::create(7, &roots(1)).expect("sealed").sealed, stored.sealed, "it is random");
    }
}

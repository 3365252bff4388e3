//! The stored state of an account and of each name, and its sealing.
//!
//! The name of the entry and its version are authenticated, too, so that an entry cannot be moved to another name, and
//! an old one cannot stand for a newer one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::AcmeEntry;
use crate::tokens::family::refresh_token::Roots;
use crate::types::secret::{self, Secret};

/// The account at one authority. No `Debug`: it must not reach a log.
#[derive(Serialize, Deserialize)]
pub(super) struct Account {
    /// PKCS#8.
    pub(super) key: Vec<u8>,
}

/// One name. All times are in seconds since 1970. No `Debug`: it must not reach a log.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct NameState {
    pub(super) certificate: Option<Certificate>,
    pub(super) order: Option<OrderState>,
    /// When orders began in the last hour.
    pub(super) begun: Vec<u64>,
    /// Failed orders in a row.
    pub(super) failures: u32,
    /// No order before this.
    pub(super) retry_at: u64,
    /// Why the last order failed.
    pub(super) error: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Certificate {
    /// The directory of its authority.
    pub(super) directory: String,
    /// PEM, the leaf first.
    pub(super) chain: String,
    /// PKCS#8.
    pub(super) key: Vec<u8>,
    /// `notBefore` and `notAfter`.
    pub(super) life: (u64, u64),
    pub(super) issued_at: u64,
    pub(super) renew_at: u64,
    /// The window that the authority has suggested (RFC 9773 section 4.2). `renew_at` is in it.
    pub(super) window: Option<(u64, u64)>,
    /// When to ask the authority for the window.
    pub(super) ask_at: u64,
}

/// An order that has begun.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct OrderState {
    pub(super) directory: String,
    /// `None` until the authority has responded.
    pub(super) url: Option<String>,
    /// PKCS#8, of the certificate to be.
    pub(super) key: Vec<u8>,
    /// The digest of the key authorization, while the authority validates the name.
    pub(super) validation: Option<[u8; 32]>,
}

pub(super) fn account_entry(directory: &str) -> String {
    format!("account {directory}")
}

pub(super) fn name_entry(name: &str) -> String {
    format!("name {name}")
}

/// `None` without a root secret.
pub(super) fn seal(name: String, version: u64, content: &impl Serialize, roots: &Roots) -> Option<AcmeEntry> {
    let plain = Secret::new(serde_json::to_vec(content).ok()?);
    let sealed = secret::seal(&key(roots.newest_secret()?), &place(&name, version), plain.expose())?;
    Some(AcmeEntry { name, version, root: roots.newest(), sealed })
}

/// Reverses [`seal`]. `None` for anything that was not sealed for this place.
pub(super) fn open<T: DeserializeOwned>(entry: &AcmeEntry, roots: &Roots) -> Option<T> {
    let root = roots.find(entry.root)?;
    let plain = secret::unseal(&key(root), &place(&entry.name, entry.version), &entry.sealed)?;
    serde_json::from_slice(plain.expose()).ok()
}

fn place(name: &str, version: u64) -> String {
    format!("{version} {name}")
}

fn key(root: &Secret) -> Secret {
    secret::derive(root, b"", "bearward acme v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_opens_only_in_its_place() {
        let roots = |byte| Roots::new((1, Secret::new(vec![byte; 32])), vec![]);
        let entry = seal(account_entry("https://ca.example"), 3, &Account { key: vec![7; 9] }, &roots(1));
        let entry = entry.expect("sealed");
        let opens = |entry: &AcmeEntry, roots: &Roots| open::<Account>(entry, roots).is_some();
        assert!(opens(&entry, &roots(1)));
        assert!(!opens(&entry, &roots(2)));
        assert!(!opens(&AcmeEntry { version: 2, ..entry.clone() }, &roots(1)));
        assert!(!opens(&AcmeEntry { name: name_entry("api.example"), ..entry.clone() }, &roots(1)));
        assert!(!opens(&AcmeEntry { root: 2, ..entry }, &roots(1)));
    }
}

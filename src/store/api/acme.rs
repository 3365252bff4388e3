//! The part of a store for ACME.

use crate::store::acme::AcmeEntry;
use crate::store::api::future::StoreFuture;

/// The account and the certificates of ACME.
pub trait AcmeStore: Send + Sync {
    /// The entries of which the version is not one of these: those that others have changed.
    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>>;

    /// Writes an entry with the next version, or deletes it if it has no content. Returns false, and changes nothing,
    /// if the entry in the store does not have the version before: another gateway has changed it.
    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool>;
}

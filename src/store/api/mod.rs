//! The interface of a store.
//!
//! Each method is one transaction and returns an outcome, so that a rejection can still commit: the reuse of a refresh
//! token revokes its family, and the request is then rejected. When a method has returned `Ok`, its change survives a
//! loss of power. When it has returned an error, it has not reported a change to any caller.
//!
//! The interface has a part for each use. A caller takes the parts that it needs, and [`Store`] is all of them.

mod acme;
mod audit;
mod families;
mod future;
mod keys;
mod marks;
mod provider_logins;
mod revocations;
mod upkeep;

pub use acme::AcmeStore;
pub use audit::{AuditStore, Outbox};
pub use families::{DecideRotation, FamilyStore, IssuedOnce, RevokeOutcome, RevokedBy};
pub use future::StoreFuture;
pub use keys::{DecideKeys, KeyStore, KeysChanged};
pub use marks::MarkStore;
pub use provider_logins::ProviderLoginStore;
pub use revocations::{LogOrder, MAX_REVOCATIONS, RevocationHook, RevocationStore};
pub use upkeep::StoreUpkeep;

/// A whole store.
pub trait Store:
    FamilyStore + RevocationStore + MarkStore + ProviderLoginStore + KeyStore + AuditStore + AcmeStore + StoreUpkeep
{
}

impl<S> Store for S where
    S: FamilyStore + RevocationStore + MarkStore + ProviderLoginStore + KeyStore + AuditStore + AcmeStore + StoreUpkeep
{
}

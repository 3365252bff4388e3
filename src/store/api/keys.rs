//! The part of a store for signing keys and the keys of TLS session tickets.

use crate::store::api::future::StoreFuture;
use crate::tokens::audit_event::EventContext;
use crate::tokens::signing::StoredKey;
use crate::tokens::ticket_key::StoredTicketKey;

/// The decision of [`KeyStore::change_signing_keys`], made inside its transaction: from the current keys to the new
/// ones. It must have no side effects: the store may run a transaction again, and only the last decision counts.
pub type DecideKeys = Box<dyn Fn(Vec<StoredKey>) -> Vec<StoredKey> + Send>;

/// The signing keys before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysChanged {
    pub before: Vec<StoredKey>,
    pub after: Vec<StoredKey>,
}

/// Keys that all gateways of a store share.
pub trait KeyStore: Send + Sync {
    /// Calls `decide` with the signing keys, newest first, and writes the decision.
    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged>;

    /// The keys of TLS session tickets for the window of `candidate` and the one before, newest first. Adds `candidate`
    /// if its window has no key. Empty if the store belongs to one gateway, which keeps such keys in memory.
    fn ticket_keys(&self, _candidate: StoredTicketKey) -> StoreFuture<Vec<StoredTicketKey>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

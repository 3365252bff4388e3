//! The keys in force: of each accepted issuer, and the gateway's own keys, which also sign.
//!
//! A [`Keyring`] holds one snapshot, [`Keys`], which is replaced as a whole.
//!
//! The keys of another issuer come from a [`Source`]: a file, or the issuer itself (`remote`). A task ([`watch()`])
//! keeps them up to date: it refreshes them before they expire (`schedule`), and when a token names an unknown `kid`
//! (`refetch`). The gateway's own keys ([`OwnIssuer`]) come from the store, where the broker rotates them, or from a
//! file. If other gateways share the store, a token with an unknown `kid` makes this one look there ([`OwnRefetch`]).

mod document;
mod error;
mod fetch;
mod new_keys;
mod own_issuer;
mod own_refetch;
mod refetch;
mod remote;
mod schedule;
mod settings;
mod snapshot;
mod source;
mod survey;
mod watcher;

pub use document::{Document, Place};
pub use error::{DiscoveryError, KeySourceError, OwnKeysError};
pub use own_issuer::OwnIssuer;
pub use own_refetch::OwnRefetch;
pub use refetch::RefetchOutcome;
pub use settings::{KeyFile, KeySource, Location, OnStale, Remote, Startup};
pub use snapshot::{KeyUser, Keyring, Keys};
pub use source::{Counts, Source, Status};
pub use survey::algorithms;
pub use watcher::watch;

#[cfg(test)]
mod tests;

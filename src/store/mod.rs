//! The durable state of tokens.
//!
//! [`Store`] is the interface, [`sqlite`] the embedded implementation. What every implementation must do in the same
//! way is in `watermark`, `events` and [`sweep`].

mod api;
mod error;
mod events;
pub mod sqlite;
pub mod sweep;
mod watermark;

pub use api::{
    DecideKeys, DecideRotation, KeysChanged, LogOrder, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store,
    StoreFuture,
};
pub use error::StoreError;

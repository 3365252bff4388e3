//! The durable state of tokens.
//!
//! [`Store`] is the interface. [`sqlite`] is the embedded implementation for one gateway, [`postgres`] the one that
//! several gateways share. What every implementation must do in the same way is in `watermark`, `events` and [`sweep`].

mod api;
pub mod copy;
mod error;
mod events;
pub mod postgres;
mod settings;
pub mod sqlite;
pub mod sweep;
mod watermark;

pub use api::{
    DecideKeys, DecideRotation, KeysChanged, LogOrder, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store,
    StoreFuture,
};
pub use error::StoreError;
pub use settings::Settings;

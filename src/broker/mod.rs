//! The token broker: it issues token families, refreshes and revokes them, and manages the keys that sign.
//!
//! [`refresh`] and [`revoke`] are the two calls that clients make; `issue` creates families for the admin API and for
//! captured logins; [`keys`] rotates the signing keys. [`Broker`] is what they share: the store, the secrets and the
//! settings.

mod api_keys;
mod client;
mod issue;
mod key_error;
mod key_tools;
pub mod keys;
pub mod refresh;
pub mod revoke;
mod service;
mod settings;
mod store_error;
mod token_pair;

pub use api_keys::IssuedKey;
pub use client::check_holder;
pub use key_error::KeysError;
pub use key_tools::KeyTools;
pub use service::Broker;
pub use settings::{BODY_LIMIT, Settings};
pub use token_pair::TokenPair;

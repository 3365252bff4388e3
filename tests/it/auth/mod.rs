//! Authentication: tokens, keys and caches.

mod api_keys;
pub mod authenticate;
pub mod key_changes;
pub mod keyring;
mod many;
pub mod token_cache;
pub mod token_places;

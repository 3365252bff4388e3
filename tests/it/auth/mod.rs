//! Authentication: tokens, keys and caches.

mod api_key_rates;
mod api_keys;
mod api_keys_without_store;
pub mod authenticate;
mod certificate_bound;
mod certificate_clients;
mod certificate_sessions;
mod confirmations;
pub mod dpop;
mod introspection;
pub mod key_changes;
pub mod keyring;
mod many;
pub mod token_cache;
pub mod token_places;

//! Authentication: from the bearer token of a request to a verified [`authenticate::Caller`].

pub mod api_keys;
pub mod authenticate;
pub mod bad_signatures;
pub mod bearer;
pub mod context;
pub mod identity;
pub mod keyring;
pub mod renewals;
pub mod revocations;
pub mod seen_generations;
pub mod signature_queue;
pub mod token_cache;
mod verify_api_key;

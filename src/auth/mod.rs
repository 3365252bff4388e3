//! Authentication: from the bearer token of a request to a verified [`authenticate::Caller`].

pub mod api_keys;
pub mod authenticate;
pub mod bad_signatures;
pub mod bearer;
pub mod context;
pub mod exchanged_tokens;
pub mod handles;
pub mod identity;
pub mod introspection;
mod key_lookups;
pub mod keyring;
pub mod leases;
pub mod oauth_client;
pub mod provider;
pub mod registered_clients;
pub mod renewals;
pub mod revocations;
pub mod seen_generations;
pub mod signature_queue;
pub mod signed_jwt;
mod stale;
pub mod subject_token;
pub mod token_cache;
pub mod token_exchange;
mod verify_api_key;
mod verify_handle;
mod verify_opaque;

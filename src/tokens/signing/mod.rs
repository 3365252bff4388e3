//! The gateway's signing keys as the store keeps them, and what each key is used for at a given time.
//!
//! A key is first **pending**: it is published, so that services that cache the key set have it in time. Then it is
//! **active** and signs. Then it is **retired**: it no longer signs, and still verifies while its access tokens are
//! valid. After that it verifies only at refreshes, where expired tokens are accepted, and finally it is deleted. An
//! operator can end a key early; it is then **revoked**.
//!
//! [`schedule`] decides what happens to the keys at a given time, and [`file_key`] if the operator makes them. [`seal`]
//! encrypts private keys, so that a reader of the store cannot use them.

pub mod file_key;
mod key_lifetimes;
pub mod schedule;
pub mod seal;
mod stored_key;

pub use key_lifetimes::KeyLifetimes;
pub use stored_key::{KeyState, StoredKey};

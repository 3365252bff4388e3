//! The admin listener: health, readiness, metrics, and the admin API for tokens, keys, upstreams and reloads.
//!
//! It has its own thread, so that it responds while the workers are busy.

mod body;
mod keys;
mod listener;
mod probes;
mod reload;
mod reload_reply;
mod revocations;
mod router;
mod settings;
mod state;
mod tokens;
mod upstreams;

pub use listener::serve;
pub use reload_reply::{ReloadError, ReloadReply, Reloaded};
pub use settings::{MAX_TOKEN_SIZE, SecretSource, Settings};
pub use state::Admin;

//! Wiring: a [`Config`](crate::config::Config) becomes a running gateway, and later drains.
//!
//! The order of the start is a matter of security: secrets, store, every revocation, keys, addresses. The gateway
//! accepts the first connection when all of these are ready. Every thread and task has an owner here that can stop it.

mod acme;
mod acme_tasks;
mod audit;
mod auth_state;
mod authorization;
mod check;
mod control;
mod copy_store;
mod error;
mod event_streams;
pub mod explain;
mod explain_authorization;
mod explain_certificate;
mod explain_unknown;
mod issuer_keys;
mod live_explain;
mod migrate_store;
mod open_store;
mod own_calls;
mod own_keys;
mod proofs;
mod provider_changes;
mod reload;
mod reload_metrics;
mod reload_thread;
mod reload_trials;
mod removed_fields;
mod root_secrets;
mod running;
mod secrets;
mod shared_state;
mod shared_store;
mod sign_in_providers;
mod sockets;
mod stale_requests;
mod start;
mod store_pool;
mod stored;
mod sweep_store;
mod sweeping;
mod systemd;
mod takeover;
mod thread;
mod traces;
mod upstreams;
mod workers;

pub use check::check;
pub use copy_store::{Copied, CopyStep, copy_store};
pub use error::StartError;
pub use migrate_store::{Owner, migrate_store};
pub use root_secrets::add_root;
pub use running::Running;
pub use secrets::SecretError;
pub use sockets::Inherited;
pub use start::{start, start_with, take_over};
pub use sweep_store::{Swept, sweep_store};
pub use systemd::notify_systemd;

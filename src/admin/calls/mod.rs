//! The calls of the admin API, one file for each path.

pub(super) mod api_keys;
mod body;
pub(super) mod certificates;
pub(super) mod clients;
pub(super) mod configuration;
mod cursor;
mod ended_tokens;
pub(super) mod explain;
pub(super) mod explainer;
pub(super) mod issuers;
pub(super) mod keys;
pub(super) mod known_clients;
pub(super) mod operator_sessions;
mod query;
pub(super) mod rejections;
pub(super) mod reload;
pub(super) mod reload_reply;
pub(super) mod revocations;
mod segment;
pub(super) mod stats;
pub(super) mod stats_streams;
mod token_entry;
mod token_search;
pub(super) mod tokens;
pub(super) mod upstreams;

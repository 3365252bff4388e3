//! Forwarding: the backend receives what the client sent, and the client receives what the backend responded.

mod bodies;
mod changes;
mod connections;
mod header_rules;
mod protocols;
mod redirects;
mod semantics;
mod strip_prefix;
mod unchanged;

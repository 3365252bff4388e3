//! The stories: one binary, a module for each behaviour.

mod authenticate;
mod config;
mod forward;
mod framing;
mod header_hygiene;
mod paths;
mod store;
mod support;
mod upstream_failures;

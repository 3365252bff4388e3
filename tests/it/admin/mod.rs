//! The operators' listener.

mod issue;
mod listener;
mod lists;
mod metrics;
mod revocations;

//! The operators' listener.

mod issue;
mod limits;
mod listener;
mod lists;
mod metrics;
mod revocations;
mod socket;

//! The operators' listener.

mod issue;
mod limits;
mod listener;
mod lists;
mod metrics;
mod reference;
mod revocations;
mod socket;

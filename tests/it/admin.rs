//! The operators' listener.

mod listener;
mod metrics;

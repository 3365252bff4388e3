//! The operators' listener.

mod metrics;

//! The keys of other issuers, and the gateway's signing keys.

pub mod issuers;
pub mod own;

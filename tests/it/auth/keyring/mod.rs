//! Keys: those of other issuers, and the gateway's own.

pub mod issuers;
pub mod own;

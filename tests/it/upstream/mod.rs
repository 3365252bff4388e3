//! Upstreams: groups of servers, and their failures.

pub mod failures;
pub mod groups;

//! Backends: groups of servers, and how they fail.

pub mod failures;
pub mod groups;

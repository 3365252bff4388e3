//! The driver and the operations against a real server.

mod driver;
pub(super) mod given;
mod operations;
mod search;

//! The driver and the operations against a real server.

mod driver;
mod given;
mod operations;

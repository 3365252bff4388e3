//! Connections: idle ones, and their end.

pub mod idle;
pub mod lingering_close;

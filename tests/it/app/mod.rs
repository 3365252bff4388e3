//! A running gateway: start, reload, take-over, shutdown, crashes.

pub mod drain;
pub mod killed;
pub mod lifecycle;
pub mod reload;

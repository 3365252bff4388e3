//! Tests of a running gateway: start, reload, take-over, graceful shutdown and crashes.

pub mod drain;
mod dry_run;
pub mod killed;
pub mod lifecycle;
mod other_files;
mod postgres;
pub mod reload;
mod reload_limits;
mod secrets;

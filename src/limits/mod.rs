//! Limits: rates, concurrency, penalties and pace.

pub mod concurrency;
pub mod limiter;
pub mod pace;
pub mod penalty;
pub mod per_address;
pub mod rate_limit;
pub mod throttle;

//! Limits: request rates, concurrency, penalties for floods, timeouts and minimum transfer rates.

pub mod concurrency;
pub mod key_rate;
pub mod limiter;
pub mod network;
pub mod pace;
pub mod penalty;
pub mod per_address;
pub mod rate_limit;
pub mod reserve;
pub mod throttle;

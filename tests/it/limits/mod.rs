//! Timeouts, rates and limits: a slow or greedy client does not affect the others.

mod connection_age;
mod connections;
mod counted;
mod crowds;
mod floods;
mod full;
mod min_rates;
mod overload;
mod penalties;
mod rates;
mod sizes;
mod slow_uploads;
mod throttle;
mod timeouts;

/// A complete request that every upstream serves.
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

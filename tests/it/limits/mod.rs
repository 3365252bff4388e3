//! Nobody is waited for without end, and nobody takes more than a share.

mod connections;
mod floods;
mod life;
mod load;
mod pace;
mod pauses;
mod rates;
mod silence;
mod sizes;
mod slow_uploads;
mod throttle;

/// Whole, and served by every upstream.
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

//! Basic types: time.

mod clock;

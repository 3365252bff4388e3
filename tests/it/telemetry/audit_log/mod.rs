//! Audit events: each thing that happens to a token, told exactly once, whatever fails on the way.

mod events;
mod sinks;

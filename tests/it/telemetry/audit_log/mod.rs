//! Audit events: the gateway records each event of a token exactly once, also after failures.

mod events;
mod sinks;
mod webhooks;

//! The access log, the audit log, traces, and what Prometheus reads.

pub mod access_log;
mod alerts;
pub mod audit_log;
mod log_floods;
mod log_formats;
mod prometheus;
mod stuck_output;
mod timings;
mod traces;

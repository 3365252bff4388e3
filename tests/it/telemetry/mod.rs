//! The access log, the audit log, and what Prometheus reads.

pub mod access_log;
mod alerts;
pub mod audit_log;
mod log_floods;
mod prometheus;
mod stuck_output;

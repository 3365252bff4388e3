//! The access log and the audit log.

pub mod access_log;
pub mod audit_log;
mod log_floods;
mod stuck_output;

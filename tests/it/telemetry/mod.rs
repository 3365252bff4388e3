//! What the operator sees: access log and audit log.

pub mod access_log;
pub mod audit_log;

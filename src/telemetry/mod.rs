//! What operators see: the access log, the audit log and metrics.

pub mod access_log;
pub mod audit_log;
pub mod messages;
pub mod metrics;
pub mod recent_rejections;
pub mod snapshots;

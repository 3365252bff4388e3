//! The gateway as operators see it: the access log, the audit log, metrics and traces.

pub mod access_log;
pub mod audit_log;
pub mod messages;
pub mod metrics;
pub mod outage;
pub mod post;
pub mod recent_rejections;
pub mod report_interval;
pub mod snapshots;
pub mod spans;

//! `[audit]`

use std::path::PathBuf;

use crate::telemetry::post::Receiver;

#[derive(Clone, Debug, PartialEq)]
pub struct AuditLogSettings {
    pub target: AuditLogTarget,
    /// `audit.outbox`: Maximum number of events that wait for their delivery.
    pub outbox: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AuditLogTarget {
    Off,
    File(PathBuf),
    Webhook(Receiver),
}

//! `[audit]`

use std::path::PathBuf;

use crate::telemetry::post::Receiver;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    /// `audit.outbox`: Maximum number of events that wait for their delivery.
    pub outbox: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Off,
    File(PathBuf),
    Webhook(Receiver),
}

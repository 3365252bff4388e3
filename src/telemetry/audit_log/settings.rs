//! `[audit]`

use std::path::PathBuf;

use crate::protocols::url::SecureUrl;

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
    Webhook(Webhook),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    pub url: SecureUrl,
    /// CA certificates (PEM). `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// A file with the value of the Authorization header.
    pub authorization_file: Option<PathBuf>,
}

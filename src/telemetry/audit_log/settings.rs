//! `[audit]`: where events go, and how many wait at most.

use std::path::PathBuf;

use crate::protocols::url::KeyUrl;

/// `[audit]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    /// `audit.outbox`: so many events wait at most.
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
    pub url: KeyUrl,
    /// PEM; without it, the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Holds the value of the Authorization header.
    pub authorization_file: Option<PathBuf>,
}

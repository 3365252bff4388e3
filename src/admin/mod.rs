//! The operators' listener: health, readiness, metrics, and the tokens API.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::tls;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub address: SocketAddr,
    pub tls: tls::Settings,
    pub token: SecretSource,
}

/// Where a secret comes from: never from the configuration itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Made on first start with mode 0600.
    File(PathBuf),
    Environment(String),
}

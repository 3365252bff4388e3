//! The backends: groups of servers, and the worker's own pools of connections to them.

use std::path::PathBuf;
use std::time::Duration;

/// `[[upstream]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub name: String,
    /// At least one.
    pub servers: Vec<ServerSettings>,
    pub protocol: Protocol,
    /// Roots for `https://` servers; the system's when `None`.
    pub ca_file: Option<PathBuf>,
    /// How long an idle connection is kept. Below the backend's own limit (Node: 5 s), or it closes first.
    pub idle_timeout: Duration,
    /// Connections to one server, for each worker.
    pub connections: usize,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub preserve_host: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// `https://`.
    pub tls: bool,
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

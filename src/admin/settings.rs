//! `[admin]`, and where a secret comes from.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::access::operators::Access;
use crate::limits::limiter::Rate;
use crate::protocols::tls::ServerTlsSettings;

/// Maximum size of an admin token in bytes.
pub const MAX_TOKEN_SIZE: usize = 1024;

/// How long the admin listener waits for a TLS handshake, a request header, or a request body.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client of the admin listener may take to read a response that its socket cannot hold.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// `[admin]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminSettings {
    /// The Unix socket for the command line. Its clients need no token.
    pub socket: PathBuf,
    pub address: SocketAddr,
    pub tls: ServerTlsSettings,
    pub token: SecretSource,
    /// Names in `Host` that are accepted at `address`, in lower case.
    pub hosts: Vec<String>,
    /// Maximum connections to `address`, and as many to `socket`.
    pub connections: usize,
    /// Maximum connections from one client to `address`. 0: no limit.
    pub connections_per_address: usize,
    /// Maximum wrong tokens from one client. `None`: no limit.
    pub wrong_tokens: Option<Rate>,
    /// `[[admin.operator]]`
    pub operators: Vec<Access>,
    pub session_lifetime: Duration,
    /// Maximum event streams at once. 0: none.
    pub streams: usize,
    /// How many rejections each worker keeps. 0: none.
    pub recent_rejections: usize,
    /// Whether the operators' page is served.
    pub page: bool,
}

/// The source of a secret. The configuration names it and never holds the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Created at the first start, with mode 0600.
    File(PathBuf),
    Environment(String),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "{}", path.display()),
            SecretSource::Environment(name) => write!(f, "the environment variable {name}"),
        }
    }
}

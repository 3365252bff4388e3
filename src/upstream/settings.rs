//! `[[upstream]]` as it is configured.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::{health, outlier};
use crate::protocols::proxy_protocol::Version;
use crate::protocols::tls::CertificateFiles;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub name: String,
    /// At least one, at most [`MOST_SERVERS`].
    pub servers: Vec<ServerSettings>,
    pub protocol: Protocol,
    pub balance: Balance,
    pub tls: TlsSettings,
    /// How long an idle connection is kept. Below the backend's own limit (Node: 5 s), or it closes first.
    pub idle_timeout: Duration,
    /// A connection that is older takes no further request.
    pub max_connection_age: Duration,
    /// How often the names of servers are looked up again.
    pub dns_refresh_interval: Duration,
    /// Requests under way to one server, for each worker. Over HTTP/2 no more than the server allows on a connection.
    pub max_concurrent_requests: usize,
    /// Of a hundred of these, so many are kept back for addresses that have few.
    pub reserve_percent: usize,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub preserve_host: bool,
    /// Each connection begins with a header of this version, and carries requests of the one client that it names.
    pub proxy_protocol: Option<Version>,
    /// Of a hundred requests, so many may be sent a second time.
    pub retry_budget_percent: usize,
    /// `None`: nobody asks.
    pub health_check: Option<health::Settings>,
    pub ejection: outlier::Settings,
}

/// One bit of a [`Set`](super::balance::Set) each.
pub const MOST_SERVERS: usize = 128;

/// For `https://` servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSettings {
    /// Roots; the system's when `None`.
    pub ca_file: Option<PathBuf>,
    /// What the gateway shows of itself.
    pub client: Option<CertificateFiles>,
    /// The name that is asked for and that the certificate must have, instead of the one in `servers`.
    pub server_name: Option<String>,
}

impl TlsSettings {
    /// Whatever a reload may find changed.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let client = self.client.iter().flat_map(|client| [&client.certificate, &client.key]);
        self.ca_file.iter().chain(client)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// `https://`.
    pub tls: bool,
    /// An IPv6 address stands without its brackets.
    pub host: String,
    pub port: u16,
}

impl ServerSettings {
    /// As it stands in Host and in log lines.
    pub fn authority(&self) -> String {
        let ServerSettings { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// As it stands in the configuration: what tells it from the others of its upstream.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Which server a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Balance {
    RoundRobin,
    /// Of two at random, the one with fewer requests of this worker under way. Those of all workers would be one number that
    /// every core writes for every request; that two choices see only their own part of the load costs them little, as
    /// connections are spread over the workers at random.
    LeastRequests,
    /// The same key leads to the same server. A request without one takes its turn.
    Hash(Key),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// The token's.
    Subject,
    /// Of the request as the upstream sees it.
    Header(HeaderName),
}

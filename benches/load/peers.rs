//! The peers: HAProxy and nginx from their Debian packages, configured for the same work. Each has one worker, the same
//! origin and the same certificate. HAProxy also checks the same tokens.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use bearward::tokens::jwt::Algorithm;

use crate::Outcome;
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
        }
    }

    /// The reason why this proxy cannot run the scenario, if it cannot.
    pub fn unsupported_reason(self, scenario: &Scenario) -> Option<&'static str> {
        match (self, scenario.tokens) {
            _ if !scenario.is_checked() => None,
            (Kind::Nginx, _) => Some("the package has no module that checks tokens"),
            (Kind::Haproxy, Tokens::One(Algorithm::EdDSA)) => Some("its jwt_verify does not support EdDSA"),
            (Kind::Haproxy, _) => None,
        }
    }
}

impl Peer {
    /// Starts the proxy with the gateway's certificate and public keys.
    pub fn start(kind: Kind, setup: &PeerSetup<'_>) -> Outcome<Peer> {
        let [plain, encrypted, rs256, hs256] = std::array::from_fn(|_| free_address());
        let ports = Ports { plain, encrypted, rs256, hs256 };
        let folder = tempfile::tempdir()?;
        let text = match kind {
            Kind::Haproxy => haproxy(folder.path(), &ports, setup)?,
            Kind::Nginx => nginx(folder.path(), &ports, setup),
        };
        fs::write(folder.path().join("peer.conf"), text)?;
        let name = kind.name();
        if !is_installed(name) {
            return Err(format!("{name} is not installed (`apt-get install {name}`)").into());
        }
        let prefix = format!("{}/", folder.path().display());
        let arguments = match kind {
            Kind::Haproxy => vec!["-db", "-f", "peer.conf"],
            Kind::Nginx => vec!["-p", &prefix, "-c", "peer.conf"],
        };
        let program = Program::start(Path::new(name), &arguments, folder, setup.cpus, plain, "/public/1k")?;
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
            (Transport::Plain, _) => self.ports.plain,
        }
    }
}

//! The peers: HAProxy and nginx from their Debian packages, configured for the same work. Each has one worker, the same
//! origin and the same certificate. HAProxy also checks the same tokens.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Target};
use crate::gateway::on_cores;
use crate::peer_files::{haproxy, nginx};
use crate::peer_setup::{PeerSetup, Ports};
use crate::ports::free_address;
use crate::scenario::{Scenario, Tokens, Transport};

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Checks signature, `iss`, `aud` and `exp` on each request (`jwt_verify`)
    Haproxy,
    /// Checks no tokens: the package has no module for that
    Nginx,
}

/// A running peer. Dropping it kills the process and removes its files.
pub struct Peer {
    process: Child,
    pub ports: Ports,
    folder: TempDir,
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
        let configuration = folder.path().join("peer.conf");
        fs::write(&configuration, text)?;
        let log = File::create(folder.path().join("output.log"))?;
        let mut command = on_cores(Path::new(kind.name()), setup.cpus);
        match kind {
            Kind::Haproxy => command.args(["-db", "-f"]).arg(&configuration),
            Kind::Nginx => command.arg("-p").arg(folder.path()).arg("-c").arg(&configuration),
        };
        // Debian installs both in /usr/sbin, which is not in the PATH of ordinary users.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let missing = |error| format!("cannot start {0}: {error} (install it with `apt-get install {0}`)", kind.name());
        let mut peer = Peer { process: command.spawn().map_err(missing)?, ports, folder };
        peer.wait_until_ready()?;
        Ok(peer)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn address(&self, scenario: &Scenario) -> SocketAddr {
        match (scenario.transport, scenario.tokens) {
            (Transport::Tls | Transport::H2, _) => self.ports.encrypted,
            (Transport::Plain, Tokens::One(Algorithm::RS256)) => self.ports.rs256,
            (Transport::Plain, Tokens::One(Algorithm::HS256)) => self.ports.hs256,
            (Transport::Plain, _) => self.ports.plain,
        }
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = Target::plain(self.ports.plain);
        let request = b"GET /public/1k HTTP/1.1\r\nHost: localhost\r\n\r\n";
        while Instant::now() < deadline {
            let output = || fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("it exited at once ({status}): {}", output().trim()).into());
            }
            let response = Connection::open(&target).and_then(|mut connection| connection.exchange(request));
            if response.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("not ready after 20 s".into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ignored: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

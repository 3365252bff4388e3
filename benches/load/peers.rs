//! The proxies that an operator would pick instead, from Debian's packages, set up for the same work: one worker, the same
//! origin, the same certificate, and for those that can, the same tokens.

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
use crate::gateway::{free_addresses, on_cores};
use crate::keys::Keys;
use crate::peer_files::{haproxy, nginx};
use crate::scenario::{Over, Scenario, Tokens};

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Checks signature, `iss`, `aud` and `exp` on each request (`jwt_verify`)
    Haproxy,
    /// Cannot check tokens: the package has no module for it
    Nginx,
}

/// Killed, and its files removed, when dropped.
pub struct Peer {
    process: Child,
    pub ports: Ports,
    folder: TempDir,
}

/// A listener for each kind of token is the least that HAProxy has to ask itself about a request.
pub struct Ports {
    pub plain: SocketAddr,
    pub encrypted: SocketAddr,
    pub rs256: SocketAddr,
    pub hs256: SocketAddr,
}

/// What a peer needs to be started.
#[derive(Clone, Copy)]
pub struct Setup<'s> {
    pub keys: &'s Keys,
    pub cpus: Option<&'s str>,
    pub origin: SocketAddr,
    /// It must take so many at once.
    pub connections: usize,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Haproxy => "haproxy",
            Kind::Nginx => "nginx",
        }
    }

    /// Why it cannot do this, if it cannot.
    pub fn lacks(self, scenario: &Scenario) -> Option<&'static str> {
        match (self, scenario.tokens) {
            _ if !scenario.is_checked() => None,
            (Kind::Nginx, _) => Some("the package has no module that checks tokens"),
            (Kind::Haproxy, Tokens::One(Algorithm::EdDSA)) => Some("its jwt_verify does not know EdDSA"),
            (Kind::Haproxy, _) => None,
        }
    }
}

impl Peer {
    /// Starts it beside the gateway, whose certificate and public keys it uses.
    pub fn start(kind: Kind, setup: &Setup<'_>) -> Outcome<Peer> {
        let [plain, encrypted, rs256, hs256] = free_addresses()?;
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
        // Debian puts both where only root looks.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let missing = |error| format!("it cannot be started ({error}); `apt-get install {}` brings it", kind.name());
        let mut peer = Peer { process: command.spawn().map_err(missing)?, ports, folder };
        peer.wait_until_ready()?;
        Ok(peer)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn address(&self, scenario: &Scenario) -> SocketAddr {
        match (scenario.over, scenario.tokens) {
            (Over::Tls | Over::H2, _) => self.ports.encrypted,
            (Over::Plain, Tokens::One(Algorithm::RS256)) => self.ports.rs256,
            (Over::Plain, Tokens::One(Algorithm::HS256)) => self.ports.hs256,
            (Over::Plain, _) => self.ports.plain,
        }
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = Target::plain(self.ports.plain);
        let request = b"GET /public/1k HTTP/1.1\r\nHost: localhost\r\n\r\n";
        while Instant::now() < deadline {
            let said = || fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("it ended at once ({status}): {}", said().trim()).into());
            }
            let answer = Connection::open(&target).and_then(|mut connection| connection.exchange(request));
            if answer.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("it was not ready after 20 s".into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Nothing is left to do if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! The means of each measurement: flags, keys, the origin, and the requests of each scenario.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Target;
use crate::drive::{Load, Measured, Pace, Reconnect, drive};
use crate::gateway::{Gateway, Setup};
use crate::keys::Keys;
use crate::peer_setup::PeerSetup;
use crate::scenario::{RequestPool, Scenario, Tokens, Transport};
use crate::{Flags, Outcome, h2, peers, tls};

pub struct Bench<'b> {
    pub flags: &'b Flags,
    pub keys: &'b Keys,
    pub origin: SocketAddr,
    pub requests: RequestPool<'b>,
}

/// The process under test. The bench measures the CPU time of `pid`.
#[derive(Clone, Copy)]
pub struct UnderTest {
    pub pid: u32,
    pub address: SocketAddr,
}

impl UnderTest {
    pub fn gateway(gateway: &Gateway, scenario: &Scenario) -> UnderTest {
        UnderTest { pid: gateway.pid(), address: gateway.target(scenario.transport != Transport::Plain).address }
    }

    pub fn peer(peer: &peers::Peer, scenario: &Scenario) -> UnderTest {
        UnderTest { pid: peer.pid(), address: peer.address(scenario) }
    }
}

/// How often all tokens are sent in the warm-up. After that, a cache that held other tokens holds all of these.
const PASSES: usize = 3;

impl Bench<'_> {
    /// The gateway with its defaults, on the cores of `--gateway-cpus`.
    pub fn gateway(&self) -> Setup<'_> {
        let cpus = self.flags.gateway_cpus.as_deref();
        Setup { cpus, ..Setup::shipped(&self.flags.gateway, self.keys, self.origin) }
    }

    pub fn peer(&self) -> PeerSetup<'_> {
        let (keys, origin) = (self.keys, self.origin);
        PeerSetup {
            keys,
            cpus: self.flags.gateway_cpus.as_deref(),
            origin,
            connections: self.flags.idle,
            logged: false,
        }
    }

    /// Fills the caches and opens the connection pools.
    pub fn warm_up(&self, scenario: &Scenario, process: UnderTest) -> Outcome<()> {
        let length = self.flags.warm_up();
        if let Tokens::Many(_) = scenario.tokens {
            for _ in 0..PASSES {
                let load = self.load(scenario, process.address, Pace::ClosedLoop, length)?;
                drive(&Load { once: true, ..load }, Pace::ClosedLoop, Duration::from_secs(30), process.pid)?;
            }
            return Ok(());
        }
        self.run(scenario, process, Pace::ClosedLoop, length).map(|_| ())
    }

    pub fn run(&self, scenario: &Scenario, process: UnderTest, pace: Pace, length: Duration) -> Outcome<Measured> {
        let load = self.load(scenario, process.address, pace, length)?;
        let measured = match (scenario.transport, pace) {
            (Transport::H2, Pace::OpenLoop(_)) => return Err("there is no open loop over HTTP/2".into()),
            (Transport::H2, Pace::ClosedLoop) => h2::drive(&load, length, process.pid)?,
            _ => drive(&load, pace, length, process.pid)?,
        };
        let Measured { responses, resumed, .. } = measured;
        if responses == 0 {
            return Err("no request got a response in time".into());
        }
        // The first two handshakes of each connection are full handshakes.
        if scenario.reconnect == Reconnect::Resumed && resumed + 2 * (load.connections as u64) < responses * 9 / 10 {
            return Err(format!("only {resumed} of {responses} handshakes resumed a session").into());
        }
        Ok(measured)
    }

    /// Requests for `path` with this field, over HTTP/1.1 without TLS. A response other than 200 ends the bench.
    pub fn repeated(&self, address: SocketAddr, path: &str, field: &str) -> Load {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{field}\r\n\r\n");
        Load {
            target: Target::plain(address),
            requests: Arc::new(vec![request.into_bytes()]),
            once: false,
            expected_status: &[200],
            connections: self.flags.connections,
            reconnect: Reconnect::Never,
            address_per_connection: false,
        }
    }

    pub fn load(&self, scenario: &Scenario, address: SocketAddr, pace: Pace, length: Duration) -> Outcome<Load> {
        let roots = &self.keys.roots;
        let tls = match scenario.transport {
            Transport::Plain => None,
            Transport::Tls => Some(tls::pinned(roots, b"http/1.1")?),
            Transport::H2 => Some(tls::pinned(roots, b"h2")?),
        };
        let connections = self.flags.connections;
        Ok(Load {
            target: Target { address, tls, from: None },
            requests: self.requests.get(scenario, pace, length)?,
            once: scenario.is_once(),
            expected_status: scenario.expected_status,
            // A body of 1 MiB fills a connection, so 8 connections are enough.
            connections: if scenario.path == "/public/1m" { connections.min(8) } else { connections },
            reconnect: scenario.reconnect,
            address_per_connection: scenario.address_per_connection,
        })
    }
}

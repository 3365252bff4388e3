//! What every measurement starts from: flags, keys, the origin, and the requests of each scenario.

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::Target;
use crate::drive::{Load, Measured, Pace, drive};
use crate::gateway::{Gateway, Setup};
use crate::keys::Keys;
use crate::scenario::{Over, Scenario, Stock, Tokens};
use crate::{Flags, Outcome, h2, peers, tls};

pub struct Bench<'b> {
    pub flags: &'b Flags,
    pub keys: &'b Keys,
    pub origin: SocketAddr,
    pub stock: Stock<'b>,
}

/// Who answers, and whose CPU time counts.
#[derive(Clone, Copy)]
pub struct Answers {
    pub pid: u32,
    pub address: SocketAddr,
}

impl Answers {
    pub fn gateway(gateway: &Gateway, scenario: &Scenario) -> Answers {
        Answers { pid: gateway.pid(), address: gateway.target(scenario.over != Over::Plain).address }
    }

    pub fn peer(peer: &peers::Peer, scenario: &Scenario) -> Answers {
        Answers { pid: peer.pid(), address: peer.address(scenario) }
    }
}

/// One token after the other, until a cache that was full of others holds them all.
const PASSES: usize = 3;

impl Bench<'_> {
    /// As shipped, where `--gateway-cpus` says.
    pub fn gateway(&self) -> Setup<'_> {
        let cpus = self.flags.gateway_cpus.as_deref();
        Setup { cpus, ..Setup::shipped(&self.flags.gateway, self.keys, self.origin) }
    }

    pub fn peer(&self) -> peers::Setup<'_> {
        let (keys, origin) = (self.keys, self.origin);
        peers::Setup { keys, cpus: self.flags.gateway_cpus.as_deref(), origin, connections: self.flags.idle }
    }

    /// Caches fill and pools open.
    pub fn warm_up(&self, scenario: &Scenario, who: Answers) -> Outcome<()> {
        let length = self.flags.warm_up();
        if let Tokens::Many(_) = scenario.tokens {
            for _ in 0..PASSES {
                let load = self.load(scenario, who.address, Pace::AsFastAsItAnswers, length)?;
                drive(&Load { once: true, ..load }, Pace::AsFastAsItAnswers, Duration::from_secs(30), who.pid)?;
            }
            return Ok(());
        }
        self.run(scenario, who, Pace::AsFastAsItAnswers, length).map(|_| ())
    }

    pub fn run(&self, scenario: &Scenario, who: Answers, pace: Pace, length: Duration) -> Outcome<Measured> {
        let load = self.load(scenario, who.address, pace, length)?;
        let measured = match (scenario.over, pace) {
            (Over::H2, Pace::PerSecond(_)) => return Err("HTTP/2 has no open loop here".into()),
            (Over::H2, Pace::AsFastAsItAnswers) => h2::drive(&load, length, who.pid)?,
            _ => drive(&load, pace, length, who.pid)?,
        };
        let Measured { answered, resumed, .. } = measured;
        // The first two handshakes of each connection are full ones.
        if scenario.anew == Some(true) && resumed + 2 * (load.connections as u64) < answered * 9 / 10 {
            return Err(format!("only {resumed} of {answered} handshakes resumed a session").into());
        }
        Ok(measured)
    }

    pub fn load(&self, scenario: &Scenario, address: SocketAddr, pace: Pace, length: Duration) -> Outcome<Load> {
        let roots = &self.keys.roots;
        let tls = match scenario.over {
            Over::Plain => None,
            Over::Tls => Some(tls::pinned(roots, b"http/1.1")?),
            Over::H2 => Some(tls::pinned(roots, b"h2")?),
        };
        let connections = self.flags.connections;
        Ok(Load {
            target: Target { address, tls, from: None },
            requests: self.stock.requests(scenario, pace, length)?,
            once: scenario.is_once(),
            expected_status: scenario.expected_status,
            // A MiB fills a connection.
            connections: if scenario.path == "/public/1m" { connections.min(8) } else { connections },
            anew: scenario.anew,
            from_everywhere: scenario.from_everywhere,
        })
    }
}

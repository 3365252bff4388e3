//! The scenarios and their requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;

use crate::Outcome;
use crate::drive::{Pace, Reconnect};
use crate::keys::Keys;

pub struct Scenario {
    pub name: &'static str,
    pub transport: Transport,
    /// A response with any other status ends the bench.
    pub expected_status: &'static [u16],
    pub reconnect: Reconnect,
    /// If true, WebSockets (`--streams`) are open while the scenario runs.
    pub streams: bool,
    /// If true, each connection has its own source address.
    pub address_per_connection: bool,
    pub path: &'static str,
    pub tokens: Tokens,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transport {
    Plain,
    Tls,
    /// HTTP/2 over TLS
    H2,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    None,
    One(Algorithm),
    /// This number of tokens, one after another.
    Many(usize),
    /// Each token is sent once.
    New,
    /// One token with a bad signature.
    Forged,
    /// Tokens with bad signatures, each sent once.
    ForgedNew,
    /// One token that is bound to a key, with a new proof for each request.
    Proven,
}

/// `plain` is `es256` on a public route. Each other scenario differs from one of these two in one point.
pub const SCENARIOS: [Scenario; 19] = [
    Scenario { path: "/public/1k", ..ES256.named("plain") },
    ES256,
    Scenario { tokens: Tokens::One(Algorithm::RS256), ..ES256.named("rs256") },
    Scenario { tokens: Tokens::One(Algorithm::EdDSA), ..ES256.named("eddsa") },
    Scenario { tokens: Tokens::One(Algorithm::HS256), ..ES256.named("hs256") },
    Scenario { tokens: Tokens::Many(1_000), ..ES256.named("es256-1000") },
    Scenario { tokens: Tokens::Many(10_000), ..ES256.named("es256-10k") },
    Scenario { tokens: Tokens::Proven, ..ES256.named("dpop") },
    Scenario { streams: true, ..ES256.named("streams") },
    Scenario { expected_status: &[401], tokens: Tokens::Forged, ..ES256.named("bad") },
    Scenario {
        expected_status: &[401],
        tokens: Tokens::ForgedNew,
        address_per_connection: true,
        ..ES256.named("bad-each")
    },
    Scenario { expected_status: &[401, 429], tokens: Tokens::ForgedNew, ..ES256.named("bad-flood") },
    Scenario { transport: Transport::Tls, path: "/public/1k", ..ES256.named("tls-plain") },
    Scenario { transport: Transport::Tls, ..ES256.named("tls-es256") },
    Scenario { transport: Transport::H2, ..ES256.named("h2-es256") },
    Scenario { reconnect: Reconnect::Full, ..TLS_PLAIN.named("handshake") },
    Scenario { reconnect: Reconnect::Resumed, ..TLS_PLAIN.named("handshake-resumed") },
    Scenario { path: "/public/1m", ..TLS_PLAIN.named("big-tls") },
    // Last, because it fills the caches with tokens that no other scenario uses.
    Scenario { tokens: Tokens::New, ..ES256.named("es256-new") },
];

const ES256: Scenario = Scenario {
    name: "es256",
    transport: Transport::Plain,
    expected_status: &[200],
    reconnect: Reconnect::Never,
    streams: false,
    address_per_connection: false,
    path: "/1k",
    tokens: Tokens::One(Algorithm::ES256),
};

const TLS_PLAIN: Scenario = Scenario { transport: Transport::Tls, path: "/public/1k", tokens: Tokens::None, ..ES256 };

/// Upper bound of the new tokens that one server can verify per second.
const MAX_NEW_PER_SECOND: f64 = 30_000.0;

/// The names for the command line.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

impl Scenario {
    const fn named(self, name: &'static str) -> Scenario {
        Scenario { name, ..self }
    }

    pub fn by_name(name: &str) -> Outcome<&'static Scenario> {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        Ok(found.ok_or_else(|| format!("unknown scenario `{name}`"))?)
    }

    /// Requests per second of the open loop. A handshake costs about as much as 10 requests, a body of 1 MiB as much as
    /// 20.
    pub fn rate(&self, rate: u64) -> u64 {
        match self.path {
            "/public/1m" => rate / 20,
            _ if self.reconnect != Reconnect::Never => rate / 10,
            _ => rate,
        }
    }

    /// Returns true if the route requires a token.
    pub fn is_checked(&self) -> bool {
        !self.path.starts_with("/public/")
    }

    /// Returns true if the gateway must check each bad signature, with `limits.bad_signatures` at its maximum.
    pub fn needs_unlimited(&self) -> bool {
        self.address_per_connection
    }

    /// Returns true if each request is sent once.
    pub fn is_once(&self) -> bool {
        matches!(self.tokens, Tokens::New | Tokens::ForgedNew | Tokens::Proven)
    }
}

/// Prepared requests. Requests that may be sent again are built once.
pub struct RequestPool<'k> {
    keys: &'k Keys,
    /// If true (`--test`), a pool has fewer tokens.
    brief: bool,
    made: RefCell<HashMap<&'static str, Arc<Vec<Vec<u8>>>>>,
}

impl<'k> RequestPool<'k> {
    pub fn new(keys: &'k Keys, brief: bool) -> RequestPool<'k> {
        RequestPool { keys, brief, made: RefCell::default() }
    }

    /// Enough requests for this pace and length.
    pub fn get(&self, scenario: &Scenario, pace: Pace, length: Duration) -> Outcome<Arc<Vec<Vec<u8>>>> {
        if let Some(made) = self.made.borrow().get(scenario.name) {
            return Ok(made.clone());
        }
        let per_second = match pace {
            Pace::OpenLoop(rate) => rate as f64,
            Pace::ClosedLoop if self.brief => MAX_NEW_PER_SECOND / 10.0,
            Pace::ClosedLoop => MAX_NEW_PER_SECOND,
        };
        let enough = (per_second * length.as_secs_f64()) as usize + 1;
        let tokens = match scenario.tokens {
            Tokens::None => vec![],
            Tokens::One(algorithm) => self.keys.tokens(algorithm, 1)?,
            Tokens::Many(count) => self.keys.tokens(Algorithm::ES256, if self.brief { 50 } else { count })?,
            Tokens::New => self.keys.tokens(Algorithm::ES256, enough)?,
            Tokens::Forged => self.keys.forgeries(1)?,
            Tokens::ForgedNew => self.keys.forgeries(enough)?,
            Tokens::Proven => self.keys.proven(scenario.path, enough)?,
        };
        let with = |token: &String| match scenario.tokens {
            Tokens::Proven => request(scenario.path, token),
            _ => request(scenario.path, &format!("Authorization: Bearer {token}\r\n")),
        };
        let requests = match tokens.as_slice() {
            [] => vec![request(scenario.path, "")],
            tokens => tokens.iter().map(with).collect(),
        };
        let requests = Arc::new(requests);
        if !scenario.is_once() {
            self.made.borrow_mut().insert(scenario.name, requests.clone());
        }
        Ok(requests)
    }
}

fn request(path: &str, authorization: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{authorization}\r\n").into_bytes()
}

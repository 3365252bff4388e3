//! What is asked in each scenario.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;

use crate::Outcome;
use crate::drive::Pace;
use crate::keys::Keys;

pub struct Scenario {
    pub name: &'static str,
    pub over: Over,
    /// Any of these.
    pub expected_status: &'static [u16],
    /// Every request over a connection of its own; `Some(true)`: which resumes the session of the last.
    pub anew: Option<bool>,
    /// Beside open WebSockets (`--streams`).
    pub streams: bool,
    /// Every connection comes from an address of its own.
    pub from_everywhere: bool,
    pub path: &'static str,
    pub tokens: Tokens,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Over {
    Plain,
    Tls,
    /// HTTP/2 over TLS
    H2,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    None,
    One(Algorithm),
    /// So many in turn.
    Many(usize),
    /// Each one once.
    New,
    /// One, with a bad signature.
    Forged,
    /// Many, each once, each with a bad signature.
    ForgedAnew,
}

/// `plain` is `es256` where nobody looks at the token; the others differ from one of these two in one thing each.
pub const SCENARIOS: [Scenario; 18] = [
    Scenario { path: "/public/1k", ..ES256.named("plain") },
    ES256,
    Scenario { tokens: Tokens::One(Algorithm::RS256), ..ES256.named("rs256") },
    Scenario { tokens: Tokens::One(Algorithm::EdDSA), ..ES256.named("eddsa") },
    Scenario { tokens: Tokens::One(Algorithm::HS256), ..ES256.named("hs256") },
    Scenario { tokens: Tokens::Many(1_000), ..ES256.named("es256-1000") },
    Scenario { tokens: Tokens::Many(10_000), ..ES256.named("es256-10k") },
    Scenario { streams: true, ..ES256.named("streams") },
    Scenario { expected_status: &[401], tokens: Tokens::Forged, ..ES256.named("bad") },
    Scenario { expected_status: &[401], tokens: Tokens::ForgedAnew, from_everywhere: true, ..ES256.named("bad-each") },
    Scenario { expected_status: &[401, 429], tokens: Tokens::ForgedAnew, ..ES256.named("bad-flood") },
    Scenario { over: Over::Tls, path: "/public/1k", ..ES256.named("tls-plain") },
    Scenario { over: Over::Tls, ..ES256.named("tls-es256") },
    Scenario { over: Over::H2, ..ES256.named("h2-es256") },
    Scenario { anew: Some(false), ..TLS_PLAIN.named("handshake") },
    Scenario { anew: Some(true), ..TLS_PLAIN.named("handshake-resumed") },
    Scenario { path: "/public/1m", ..TLS_PLAIN.named("big-tls") },
    // Last: it fills caches with what is never asked for again.
    Scenario { tokens: Tokens::New, ..ES256.named("es256-new") },
];

const ES256: Scenario = Scenario {
    name: "es256",
    over: Over::Plain,
    expected_status: &[200],
    anew: None,
    streams: false,
    from_everywhere: false,
    path: "/1k",
    tokens: Tokens::One(Algorithm::ES256),
};

const TLS_PLAIN: Scenario = Scenario { over: Over::Tls, path: "/public/1k", tokens: Tokens::None, ..ES256 };

/// The most that anybody could answer in a second of tokens that are each looked at for the first time.
const MOST_NEW: f64 = 30_000.0;

/// For the command line.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

impl Scenario {
    const fn named(self, name: &'static str) -> Scenario {
        Scenario { name, ..self }
    }

    pub fn called(name: &str) -> Outcome<&'static Scenario> {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        Ok(found.ok_or_else(|| format!("there is no scenario {name}"))?)
    }

    /// Requests a second of the open loop. A handshake costs about ten requests, a MiB twenty.
    pub fn rate(&self, rate: u64) -> u64 {
        match self.path {
            "/public/1m" => rate / 20,
            _ if self.anew.is_some() => rate / 10,
            _ => rate,
        }
    }

    /// Does anybody look at its tokens?
    pub fn is_checked(&self) -> bool {
        !self.path.starts_with("/public/")
    }

    /// Does it ask for something that bad signatures are counted for, and has it all of them checked?
    pub fn is_beyond_limits(&self) -> bool {
        self.from_everywhere
    }

    pub fn is_once(&self) -> bool {
        matches!(self.tokens, Tokens::New | Tokens::ForgedAnew)
    }
}

/// Requests that are ready to be sent. Those that may come again are made once.
pub struct Stock<'k> {
    keys: &'k Keys,
    /// Fewer tokens where there are many.
    brief: bool,
    made: RefCell<HashMap<&'static str, Arc<Vec<Vec<u8>>>>>,
}

impl<'k> Stock<'k> {
    pub fn new(keys: &'k Keys, brief: bool) -> Stock<'k> {
        Stock { keys, brief, made: RefCell::default() }
    }

    /// Enough for so long at this pace.
    pub fn requests(&self, scenario: &Scenario, pace: Pace, length: Duration) -> Outcome<Arc<Vec<Vec<u8>>>> {
        if let Some(made) = self.made.borrow().get(scenario.name) {
            return Ok(made.clone());
        }
        let per_second = match pace {
            Pace::PerSecond(rate) => rate as f64,
            Pace::AsFastAsItAnswers if self.brief => MOST_NEW / 10.0,
            Pace::AsFastAsItAnswers => MOST_NEW,
        };
        let enough = (per_second * length.as_secs_f64()) as usize + 1;
        let tokens = match scenario.tokens {
            Tokens::None => vec![],
            Tokens::One(algorithm) => self.keys.tokens(algorithm, 1)?,
            Tokens::Many(count) => self.keys.tokens(Algorithm::ES256, if self.brief { 50 } else { count })?,
            Tokens::New => self.keys.tokens(Algorithm::ES256, enough)?,
            Tokens::Forged => self.keys.forgeries(1)?,
            Tokens::ForgedAnew => self.keys.forgeries(enough)?,
        };
        let with = |token: &String| request(scenario.path, &format!("Authorization: Bearer {token}\r\n"));
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

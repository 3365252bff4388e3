//! What is asked of the gateway in each scenario.

use crate::Outcome;
use crate::gateway::Gateway;

pub struct Scenario {
    pub name: &'static str,
    pub tls: bool,
    pub expected_status: u16,
    /// Every request over a connection of its own.
    pub anew: bool,
    /// Beside open WebSockets (`--streams`).
    pub streams: bool,
    path: &'static str,
    tokens: Tokens,
}

#[derive(Clone, Copy)]
enum Tokens {
    None,
    One,
    Many,
    BadSignature,
}

/// `plain` is what a proxy costs without tokens; the others differ from it, or from `es256`, in one thing each.
pub const SCENARIOS: [Scenario; 8] = [
    Scenario { path: "/public/1k", tokens: Tokens::None, ..ES256.named("plain") },
    ES256,
    Scenario { tokens: Tokens::Many, ..ES256.named("es256-1000") },
    Scenario { streams: true, ..ES256.named("streams") },
    Scenario { expected_status: 401, tokens: Tokens::BadSignature, ..ES256.named("bad") },
    Scenario { tls: true, path: "/public/1k", tokens: Tokens::None, ..ES256.named("tls-plain") },
    Scenario { tls: true, ..ES256.named("tls-es256") },
    Scenario { tls: true, path: "/public/1k", tokens: Tokens::None, anew: true, ..ES256.named("handshake") },
];

const ES256: Scenario = Scenario {
    name: "es256",
    tls: false,
    expected_status: 200,
    anew: false,
    streams: false,
    path: "/1k",
    tokens: Tokens::One,
};

/// For the command line.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

impl Scenario {
    const fn named(self, name: &'static str) -> Scenario {
        Scenario { name, ..self }
    }

    /// Requests a second of the open loop. A handshake costs about ten requests.
    pub fn rate(&self, rate: u64) -> u64 {
        if self.anew { rate / 10 } else { rate }
    }

    /// Is no token asked for?
    pub fn is_public(&self) -> bool {
        matches!(self.tokens, Tokens::None)
    }

    /// The requests, ready to be sent; `many` is the number of tokens where there are many.
    pub fn requests(&self, gateway: &Gateway, many: usize) -> Outcome<Vec<Vec<u8>>> {
        let tokens = match self.tokens {
            Tokens::None => return Ok(vec![request(self.path, "")]),
            Tokens::One => vec![gateway.issue_by_command()?],
            Tokens::Many => gateway.issue_many(many)?,
            Tokens::BadSignature => vec![with_bad_signature(&gateway.issue_by_command()?)],
        };
        Ok(tokens.iter().map(|token| request(self.path, &format!("Authorization: Bearer {token}\r\n"))).collect())
    }
}

fn request(path: &str, authorization: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{authorization}\r\n").into_bytes()
}

/// Changes a character inside the signature; its last one carries bits that some readers ignore.
fn with_bad_signature(token: &str) -> String {
    let (kept, end) = token.split_at(token.len().saturating_sub(10));
    let other = if end.starts_with('A') { 'B' } else { 'A' };
    format!("{kept}{other}{}", end.get(1..).unwrap_or_default())
}

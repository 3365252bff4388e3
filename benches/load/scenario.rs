//! What is asked of the gateway in each scenario.

use crate::Outcome;
use crate::gateway::Gateway;

pub struct Scenario {
    pub name: &'static str,
    pub tls: bool,
    pub expected_status: u16,
    path: &'static str,
    tokens: Tokens,
}

enum Tokens {
    None,
    One,
    Many,
    BadSignature,
}

/// `plain` is what a proxy costs without tokens; the others differ from it, or from `es256`, in one thing each.
pub const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "plain", tls: false, expected_status: 200, path: "/public/1k", tokens: Tokens::None },
    Scenario { name: "es256", tls: false, expected_status: 200, path: "/1k", tokens: Tokens::One },
    Scenario { name: "es256-1000", tls: false, expected_status: 200, path: "/1k", tokens: Tokens::Many },
    Scenario { name: "bad", tls: false, expected_status: 401, path: "/1k", tokens: Tokens::BadSignature },
    Scenario { name: "tls-es256", tls: true, expected_status: 200, path: "/1k", tokens: Tokens::One },
];

/// For the command line.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

impl Scenario {
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

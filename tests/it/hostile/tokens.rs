//! Tokens that the gateway must reject.

mod claims;
mod envelope;
mod field;
mod header;
mod json;
mod signature;

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::Reason;
use bearward::types::secret;
use http::{HeaderValue, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Attack, assert_all_rejected};
use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, Upstream};

const OTHER: &str = "https://other.example";
const SHARED: &str = "https://shared.example";

/// The issuers that the gateway trusts: one with a key of each kind, one with a single key, one with a shared secret.
struct World {
    now: u64,
    /// ES256, of [`EXTERNAL_ISSUER`]: the key that most rows attack.
    mint: Mint,
    p384: Mint,
    ed: Mint,
    rsa: Mint,
    /// ES256, of [`OTHER`].
    other: Mint,
    /// HS256, of [`SHARED`].
    shared: Mint,
    /// ES256, of an unknown issuer.
    stranger: Mint,
}

impl World {
    fn new(now: u64) -> World {
        World {
            now,
            mint: Mint::new(Algorithm::ES256),
            p384: Mint::new(Algorithm::ES384),
            ed: Mint::new(Algorithm::EdDSA),
            rsa: Mint::new(Algorithm::RS256),
            other: Mint::new(Algorithm::ES256),
            shared: Mint::hmac(Algorithm::HS256, &[7; 64]),
            stranger: Mint::new(Algorithm::ES256),
        }
    }

    fn gateway(&self, upstream: &Upstream, clock: Arc<ManualClock>) -> Gateway {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        let several = json!({ "keys": [self.mint.jwk(), self.p384.jwk(), self.ed.jwk(), self.rsa.jwk()] }).to_string();
        let mut more = "[limits]\nbad_signatures = 1000\n".to_owned();
        for (name, issuer, jwks, algorithms) in [
            ("several", EXTERNAL_ISSUER, several, r#""ES256", "ES384", "EdDSA", "RS256""#),
            ("other", OTHER, self.other.jwks(), r#""ES256""#),
            ("shared", SHARED, self.shared.jwks(), r#""HS256""#),
        ] {
            // The file of a shared key is a secret.
            secret::write_private(&folder.path().join(format!("{name}.json")), jwks.as_bytes()).expect("written");
            more += &format!(
                "[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"https://api.example\"]\n\
                 jwks_file = \"{name}.json\"\nalgorithms = [{algorithms}]\n"
            );
        }
        Gateway::in_folder(Gateway::config_text(&upstream.address.to_string(), &more), folder, clock)
    }

    fn good(&self) -> String {
        self.mint.valid_token(self.now)
    }

    /// A valid token with changed claims. `null` removes a claim.
    fn claims(&self, changes: Value) -> String {
        self.mint.with_claims(self.now, changes)
    }

    fn header(&self, changes: Value) -> String {
        self.mint.with_header(self.now, changes)
    }

    /// A valid signature over this text as claims.
    fn claims_text(&self, text: impl AsRef<[u8]>) -> String {
        self.sign_bytes(self.mint.header().to_string(), text)
    }

    fn header_text(&self, text: impl AsRef<[u8]>) -> String {
        self.sign_bytes(text, self.mint.claims(self.now).to_string())
    }

    fn sign_bytes(&self, header: impl AsRef<[u8]>, claims: impl AsRef<[u8]>) -> String {
        use crate::support::tokens::segment;
        self.mint.sign_message(&format!("{}.{}", segment(header), segment(claims)))
    }

    /// `{"a":1}` and `,"b":2` are `{"a":1,"b":2}`.
    fn claims_and(&self, more: &str) -> String {
        self.claims_text(and(&self.mint.claims(self.now), more))
    }

    fn header_and(&self, more: &str) -> String {
        self.header_text(and(&self.mint.header(), more))
    }
}

fn and(object: &Value, more: &str) -> String {
    let text = object.to_string();
    format!("{}{more}}}", text.strip_suffix('}').expect("an object"))
}

/// The name of an attack, the values of its `Authorization` fields, and the reason of the rejection.
#[derive(Clone)]
struct Row(String, Vec<Vec<u8>>, Reason);

fn row(name: impl Into<String>, token: impl AsRef<[u8]>, reason: Reason) -> Row {
    Row(name.into(), vec![[b"Bearer ", token.as_ref()].concat()], reason)
}

/// Rows that differ in one value.
fn each<T: std::fmt::Debug>(what: &str, values: Vec<T>, token: impl Fn(&T) -> String, reason: Reason) -> Vec<Row> {
    values.iter().map(|value| row(format!("{what}: {value:.80?}"), token(value), reason)).collect()
}

impl Row {
    fn attack(self, number: usize) -> Attack {
        let Row(name, fields, reason) = self;
        let path = format!("/{number}");
        let mut explained = Request::get(&path).header("host", "gateway.test").header("connection", "close");
        let mut sent = format!("GET {path} HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n").into_bytes();
        for field in &fields {
            sent.extend([b"Authorization: ", field.as_slice(), b"\r\n"].concat());
            // White space around a value does not belong to it (RFC 9110 section 5.5).
            let value = HeaderValue::from_bytes(field.trim_ascii()).expect("a header value");
            explained = explained.header("authorization", value);
        }
        sent.extend(b"\r\n");
        Attack { name, sent, explained: Some(explained.body(()).expect("a request")), reason }
    }
}

#[tokio::test]
async fn hostile_tokens_are_rejected_with_their_reason() {
    let upstream = Upstream::start();
    let clock = Arc::new(ManualClock::new());
    let world = World::new(bearward::types::clock::Clock::now(&*clock).as_secs());
    let gateway = world.gateway(&upstream, clock);
    let rows: Vec<Row> = [
        field::rows(&world),
        envelope::rows(&world),
        json::rows(&world),
        header::rows(&world),
        claims::rows(&world),
        signature::rows(&world),
    ]
    .into_iter()
    .flatten()
    .collect();
    let tokens: Vec<String> =
        rows.iter().map(|Row(_, fields, _)| String::from_utf8_lossy(&fields.concat()).into_owned()).collect();
    let attacks: Vec<Attack> = rows.into_iter().enumerate().map(|(number, row)| row.attack(number)).collect();
    eprintln!("{} hostile tokens", attacks.len());
    assert!(attacks.len() >= 200, "too few attacks: {}", attacks.len());
    assert_all_rejected(&gateway, &upstream, &attacks).await;
    assert_eq!(upstream.connections(), 0, "a rejected request opens no connection to the backend");

    let log = gateway.file("access.log");
    for token in tokens.iter().filter_map(|token| token.get(7..47)) {
        assert!(!log.contains(token), "a token is in the log: {token}");
    }
    for (number, token) in claims::valid_at_the_boundary(&world).iter().enumerate() {
        assert_eq!(gateway.status_of(token).await, 200, "valid at the boundary: {number}");
    }
    let issued_by = |mint: &Mint, issuer: &str| mint.with_claims(world.now, json!({ "iss": issuer }));
    for good in [
        world.good(),
        world.p384.valid_token(world.now),
        world.ed.valid_token(world.now),
        world.rsa.valid_token(world.now),
        issued_by(&world.other, OTHER),
        issued_by(&world.shared, SHARED),
    ] {
        assert_eq!(gateway.status_of(&good).await, 200, "a valid one is accepted");
    }
}

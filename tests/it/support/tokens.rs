//! A test issuer. It signs valid tokens, and invalid ones from any header and claims.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::{self, Roots};
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use bearward::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
use bearward::types::ids::TokenId;
use bearward::types::secret::Secret;
use jsonwebtoken::EncodingKey;
use serde_json::{Value, json};

use super::gateway::AUDIENCE;
use crate::support::given::login;

pub const EXTERNAL_ISSUER: &str = "https://login.example";

/// What the gateway requires of the tokens of `EXTERNAL_ISSUER`, with the default values of `[[issuer]]`.
pub fn policy(algorithms: Vec<Algorithm>) -> Issuer {
    Issuer {
        issuer: EXTERNAL_ISSUER.into(),
        audience: Audience::OneOf(vec![AUDIENCE.into()]),
        resources: Vec::new(),
        algorithms,
        types: vec!["at+jwt".into()],
        clock_skew: Duration::from_secs(30),
        max_lifetime: Duration::from_secs(86_400),
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: false,
    }
}

pub struct Mint {
    pub algorithm: Algorithm,
    pub kid: String,
    key: EncodingKey,
    jwk: Value,
}

impl Mint {
    pub fn new(algorithm: Algorithm) -> Mint {
        let pem = generate_pem(algorithm).expect("a key");
        let public = SigningKey::from_pem(pem.expose(), algorithm).expect("the generated key");
        let key = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem.expose()),
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem.expose()),
            _ => EncodingKey::from_rsa_pem(pem.expose()),
        };
        Mint { algorithm, kid: public.kid.clone(), key: key.expect("the generated key"), jwk: public.public_jwk() }
    }

    /// An issuer that signs with a shared secret.
    pub fn hmac(algorithm: Algorithm, secret: &[u8]) -> Mint {
        let jwk = json!({ "kty": "oct", "kid": "shared", "alg": name(algorithm), "k": URL_SAFE_NO_PAD.encode(secret) });
        Mint { algorithm, kid: "shared".into(), key: EncodingKey::from_secret(secret), jwk }
    }

    /// The same key under another name.
    pub fn named(mut self, kid: &str) -> Mint {
        self.jwk["kid"] = kid.into();
        Mint { kid: kid.into(), ..self }
    }

    pub fn jwk(&self) -> Value {
        self.jwk.clone()
    }

    pub fn jwks(&self) -> String {
        json!({ "keys": [self.jwk] }).to_string()
    }

    pub fn header(&self) -> Value {
        json!({ "alg": name(self.algorithm), "typ": "at+jwt", "kid": self.kid })
    }

    pub fn claims(&self, now: u64) -> Value {
        json!({
            "iss": EXTERNAL_ISSUER, "aud": AUDIENCE, "sub": "bob", "iat": now, "exp": now + 600, "jti": "1",
            "scope": "a b",
        })
    }

    /// A valid token.
    pub fn valid_token(&self, now: u64) -> String {
        self.sign(&self.header(), &self.claims(now))
    }

    /// A valid token with some claims changed. `null` removes a claim.
    pub fn with_claims(&self, now: u64, changes: Value) -> String {
        self.sign(&self.header(), &changed(self.claims(now), changes))
    }

    /// A valid token with some members of the header changed. `null` removes a member.
    pub fn with_header(&self, now: u64, changes: Value) -> String {
        self.sign(&changed(self.header(), changes), &self.claims(now))
    }

    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs a header and claims that need not be JSON.
    pub fn sign_text(&self, header: &str, claims: &str) -> String {
        self.sign_message(&format!("{}.{}", segment(header), segment(claims)))
    }

    /// Signs two segments as they are.
    pub fn sign_message(&self, message: &str) -> String {
        self.sign_message_as(self.algorithm, message)
    }

    /// Signs with another algorithm for the same type of key.
    pub fn sign_message_as(&self, algorithm: Algorithm, message: &str) -> String {
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, algorithm);
        let token = format!("{message}.{}", signature.expect("a signature"));
        super::secrets::remember(&token);
        token
    }
}

/// The claims of an access token.
pub fn claims_of(token: &str) -> Value {
    json_segment(token, 1)
}

/// The header of an access token.
pub fn header_of(token: &str) -> Value {
    json_segment(token, 0)
}

fn json_segment(token: &str, index: usize) -> Value {
    let text = token.split('.').nth(index).expect("three segments");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).expect("base64url")).expect("JSON")
}

pub fn segment(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

pub fn name(algorithm: Algorithm) -> &'static str {
    bearward::tokens::jwt::algorithm_name(algorithm)
}

fn changed(mut object: Value, changes: Value) -> Value {
    let members = object.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
    object
}

/// Replaces one character of Base64 by another. The result is never the text of before.
pub fn with_another_character(text: &str, at: usize) -> String {
    let other = if text[at..].starts_with('A') { "B" } else { "A" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

/// A forged refresh token for a known token id. Prefix, length, alphabet and checksum are valid. The MAC is made with
/// another key.
pub fn forged_refresh(token_id: &str) -> String {
    let family = Family { id: TokenId::parse(token_id).expect("a token id"), ..login("alice", Default::default()) };
    refresh_token::current(&family, &Roots::new((1, Secret::random(32)), Vec::new())).expect("root 1 is known")
}

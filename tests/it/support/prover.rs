//! A client that signs proofs, good ones and others.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use serde_json::{Value, json};

use crate::support::tokens::{Mint, name, segment};

/// Each proof has another `jti`.
static SERIAL: AtomicU64 = AtomicU64::new(0);

pub struct Prover {
    pub key: Mint,
}

/// A proof in the making.
#[derive(Clone)]
pub struct Draft {
    pub header: Value,
    pub claims: Value,
}

impl Prover {
    pub fn new() -> Prover {
        Prover::with(Algorithm::ES256)
    }

    pub fn with(algorithm: Algorithm) -> Prover {
        Prover { key: Mint::new(algorithm) }
    }

    /// The key id of a [`Mint`] is its RFC 7638 thumbprint.
    pub fn thumbprint(&self) -> &str {
        &self.key.kid
    }

    /// The public key, with the members that a key must have.
    pub fn jwk(&self) -> Value {
        let mut jwk = self.key.jwk();
        let members = jwk.as_object_mut().expect("an object");
        members.retain(|name, _| ["kty", "crv", "x", "y", "n", "e"].contains(&name.as_str()));
        jwk
    }

    pub fn draft(&self, method: &str, url: &str, token: &str, now: u64) -> Draft {
        let jti = format!("proof-{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        Draft {
            header: json!({ "typ": "dpop+jwt", "alg": name(self.key.algorithm), "jwk": self.jwk() }),
            claims: json!({ "jti": jti, "htm": method, "htu": url, "iat": now, "ath": hash_of(token) }),
        }
    }

    pub fn sign(&self, draft: &Draft) -> String {
        self.key.sign_message(&format!("{}.{}", segment(draft.header.to_string()), segment(draft.claims.to_string())))
    }

    /// A good proof.
    pub fn proof(&self, method: &str, url: &str, token: &str, now: u64) -> String {
        self.sign(&self.draft(method, url, token, now))
    }
}

/// `ath` for this token.
pub fn hash_of(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(secret::digest(&[token.as_bytes()]))
}

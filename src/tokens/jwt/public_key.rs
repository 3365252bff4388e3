//! The public half of a signing key of the gateway: it verifies, and is published.

use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use serde_json::Value;

use super::algorithm::Algorithm;
use super::jwk::{self, ParsedJwk};
use super::key::Key;
use super::key_error::{KeyError, KeySetError};
use super::key_set::KeySet;

pub struct PublicKey {
    /// The RFC 7638 thumbprint.
    pub kid: String,
    pub algorithm: Algorithm,
    /// As in `/.well-known/jwks.json`: `kid`, `alg`, `use`, and the public parameters.
    pub jwk: Value,
}

impl PublicKey {
    /// Reads what [`PublicKey::jwk`] was written as. The `kid` is computed again.
    pub fn from_json(text: &[u8], algorithm: Algorithm) -> Option<Self> {
        let jwk: Value = serde_json::from_slice(text).ok()?;
        let kid = serde_json::from_value::<Jwk>(jwk.clone()).ok()?.thumbprint(ThumbprintHash::SHA256).ok()?;
        Some(PublicKey { kid, algorithm, jwk })
    }

    fn verifying_key(&self) -> Result<Key, KeyError> {
        match jwk::parse(&self.jwk, &[self.algorithm])? {
            ParsedJwk::Key(key) => Ok(key),
            ParsedJwk::Skipped(why) => Err(KeyError::Unsuitable(why)),
        }
    }

    /// The keys that verify the signatures of these keys.
    pub fn set(keys: &[PublicKey]) -> Result<KeySet, KeySetError> {
        KeySet::from_keys(keys.iter().map(PublicKey::verifying_key).collect::<Result<_, _>>()?)
    }
}

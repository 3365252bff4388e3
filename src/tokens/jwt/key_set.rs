//! The keys of one issuer. Which key has which algorithm is decided here, when the keys are loaded, and never by a
//! token.
//!
//! A set has no two keys with the same kid for one algorithm, no secrets among public keys, and at least one usable
//! key. In a file of the operator, any dangerous key is an error. In a fetched set, dangerous keys are skipped, because
//! one odd key must not disable all the others, and secrets are never accepted.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::algorithm::{Algorithm, algorithm_names};
use super::json::{self, quoted};
use super::jwk::{self, ParsedJwk};
use super::key::{Key, Signer};
use super::key_error::{JwksEntry, KeySetError};
use super::key_material::{KeyMaterial, only_algorithm};
use super::pem;
use crate::types::secret::Secret;

/// The keys of one issuer.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    /// The kids of keys that an operator revoked.
    revoked: Vec<String>,
}

impl KeySet {
    /// The key that may have signed a token with this `kid` and algorithm. For a token without a `kid`, the only key of
    /// that algorithm.
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithm == algorithm);
        match kid {
            Some(kid) => fitting.find(|key| key.kid.as_deref().is_none_or(|known| known == kid)),
            None => {
                let only = fitting.next();
                if fitting.next().is_none() { only } else { None }
            }
        }
    }

    /// Returns true if [`KeySet::find`] would return the same key again. A kid belongs to one key only; a token without
    /// a kid needs a set without another key of the same algorithm.
    pub(super) fn has_signer(&self, signer: &Signer) -> bool {
        let Some(same) = self.keys.iter().find(|key| key.fingerprint == signer.fingerprint) else { return false };
        signer.has_kid || self.keys.iter().filter(|key| key.algorithm == same.algorithm).count() == 1
    }

    /// Remembers the kids of revoked keys, which are not in the set: their tokens get a reason of their own.
    pub fn with_revoked(self, revoked: Vec<String>) -> Self {
        KeySet { revoked, ..self }
    }

    pub fn is_revoked(&self, kid: &str) -> bool {
        self.revoked.iter().any(|revoked| revoked == kid)
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns true if the issuer's first set was not fetched yet.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns true if every key of `other` is also in this set.
    pub fn has_all(&self, other: &KeySet) -> bool {
        other.keys.iter().all(|key| self.keys.iter().any(|own| own.fingerprint == key.fingerprint))
    }

    /// The keys for these algorithms.
    pub fn only(&self, allowed: &[Algorithm]) -> Self {
        let keys = self.keys.iter().filter(|key| allowed.contains(&key.algorithm)).cloned().collect();
        KeySet { keys, revoked: self.revoked.clone() }
    }

    /// Returns true if this text is a JWKS with a shared secret.
    pub fn has_secret(text: &[u8]) -> bool {
        let set = serde_json::from_slice::<Value>(text).unwrap_or_default();
        set["keys"].as_array().is_some_and(|entries| entries.iter().any(is_secret))
    }

    /// Reads a JSON Web Key Set (RFC 7517) of the operator. `allowed` are the issuer's algorithms. Keys for other
    /// algorithms are skipped, dangerous keys are an error, and at least one key must remain.
    pub fn from_jwks(text: &str, allowed: &[Algorithm]) -> Result<Self, KeySetError> {
        let entries = entries(text)?;
        check_not_mixed(&entries)?;
        let mut set = KeySetBuilder::default();
        for (index, entry) in entries.iter().enumerate() {
            match jwk::parse(entry, allowed) {
                Ok(parsed) => set.add(index, entry, parsed),
                Err(error) => return Err(KeySetError::Entry(position(index, entry), error)),
            }
        }
        set.check_unambiguous()?;
        set.finish(allowed)
    }

    /// Reads a fetched JWKS. Returns the set and a warning for each dangerous key, which is skipped. Every `kty: oct`
    /// is skipped too, because a published secret protects nothing.
    pub fn from_remote_jwks(text: &str, allowed: &[Algorithm]) -> Result<(Self, Vec<String>), KeySetError> {
        let mut set = KeySetBuilder::default();
        for (index, entry) in entries(text)?.iter().enumerate() {
            let warning = match jwk::parse(entry, allowed) {
                _ if is_secret(entry) => "a published secret protects nothing".to_owned(),
                Ok(parsed) => {
                    set.add(index, entry, parsed);
                    continue;
                }
                Err(error) => error.to_string(),
            };
            set.warnings.push(format!("{}: {warning}", position(index, entry)));
        }
        set.drop_ambiguous();
        let warnings = std::mem::take(&mut set.warnings);
        set.skipped.extend(warnings.iter().cloned());
        set.finish(allowed).map(|keys| (keys, warnings))
    }

    pub(super) fn from_keys(keys: Vec<Key>) -> Result<Self, KeySetError> {
        let set = KeySetBuilder { keys, ..KeySetBuilder::default() };
        set.check_unambiguous()?;
        set.finish(&[])
    }

    /// Reads one PEM public key (`PUBLIC KEY`, `RSA PUBLIC KEY`) or certificate.
    pub fn from_pem(text: &[u8], allowed: &[Algorithm]) -> Result<Self, KeySetError> {
        Self::from_material(pem::read(text)?, allowed)
    }

    /// Uses a shared secret. Every service that can verify such a token can also forge it.
    pub fn from_secret(secret: &[u8], allowed: &[Algorithm]) -> Result<Self, KeySetError> {
        Self::from_material(KeyMaterial::Secret(Secret::new(secret.to_vec())), allowed)
    }

    fn from_material(material: KeyMaterial, allowed: &[Algorithm]) -> Result<Self, KeySetError> {
        let algorithm = only_algorithm(material.algorithms(), allowed)?;
        Ok(KeySet { keys: vec![material.into_key(None, algorithm)?], ..KeySet::default() })
    }
}

fn entries(text: &str) -> Result<Vec<Value>, KeySetError> {
    let mut set = json::object(text.as_bytes()).map_err(KeySetError::NotJson)?;
    match set.remove("keys") {
        Some(Value::Array(entries)) => Ok(entries),
        _ => Err(KeySetError::NotAJwks),
    }
}

fn position(index: usize, entry: &Value) -> JwksEntry {
    let kid = entry.get("kid").and_then(Value::as_str);
    JwksEntry { index, kid: kid.map(|kid| quoted(Some(kid))) }
}

fn is_secret(entry: &Value) -> bool {
    entry.get("kty").is_some_and(|kty| kty == "oct")
}

/// A secret among public keys was published, or will be.
fn check_not_mixed(entries: &[Value]) -> Result<(), KeySetError> {
    if entries.iter().any(is_secret) && !entries.iter().all(is_secret) {
        Err(KeySetError::MixedSecrets)
    } else {
        Ok(())
    }
}

#[derive(Default)]
struct KeySetBuilder {
    keys: Vec<Key>,
    /// Harmless keys. They matter only to explain why a set is empty.
    skipped: Vec<String>,
    warnings: Vec<String>,
}

impl KeySetBuilder {
    fn add(&mut self, index: usize, entry: &Value, parsed: ParsedJwk) {
        match parsed {
            ParsedJwk::Key(key) => self.keys.push(key),
            ParsedJwk::Skipped(why) => self.skipped.push(format!("{}: it {why}", position(index, entry))),
        }
    }

    /// The kids that two keys for one algorithm share. Keys for different algorithms may share one (RFC 7517 section
    /// 4.5), because a token names its algorithm beside the kid.
    fn ambiguous(&self) -> Vec<(String, Algorithm)> {
        let mut count: HashMap<_, usize> = HashMap::new();
        for key in &self.keys {
            if let Some(kid) = &key.kid {
                *count.entry((kid.clone(), key.algorithm)).or_default() += 1;
            }
        }
        count.into_iter().filter(|(_, count)| *count > 1).map(|(named, _)| named).collect()
    }

    fn check_unambiguous(&self) -> Result<(), KeySetError> {
        if let Some((kid, _)) = self.ambiguous().into_iter().next() {
            return Err(KeySetError::DuplicateKid(kid));
        }
        if self.keys.len() > 1 && self.keys.iter().any(|key| key.kid.is_none()) {
            Err(KeySetError::MissingKid)
        } else {
            Ok(())
        }
    }

    /// Drops all keys that share a kid and an algorithm, because these do not say which one is meant. The same key
    /// twice counts once.
    fn drop_ambiguous(&mut self) {
        let mut seen = HashSet::new();
        self.keys.retain(|key| seen.insert(key.fingerprint));
        let several = self.keys.len() > 1;
        let ambiguous = self.ambiguous();
        self.warnings.extend(ambiguous.iter().map(|(kid, _)| format!("two keys have the kid {kid:?}")));
        if several && self.keys.iter().any(|key| key.kid.is_none()) {
            self.warnings.push("a key among several has no kid".into());
        }
        self.keys.retain(|key| match &key.kid {
            Some(kid) => !ambiguous.iter().any(|(shared, algorithm)| shared == kid && *algorithm == key.algorithm),
            None => !several,
        });
    }

    fn finish(self, allowed: &[Algorithm]) -> Result<KeySet, KeySetError> {
        if self.keys.is_empty() {
            Err(KeySetError::NoUsableKey { algorithms: algorithm_names(allowed), details: self.skipped })
        } else {
            Ok(KeySet { keys: self.keys, ..KeySet::default() })
        }
    }
}

#[cfg(test)]
mod tests;

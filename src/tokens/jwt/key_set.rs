//! Keys, admitted and not just loaded: what a key may do is decided here, once, and never by a token.
//!
//! Each key has exactly one algorithm. What a single key has to be is in [`admission`](super::admission); this is about
//! sets: no two keys of one `kid`, no secrets among public keys, and at least one key that can be used. A file is the
//! operator's own, so anything dangerous in it is an error. A set from elsewhere is somebody else's: what is dangerous
//! is left out of it, as one odd key there must not stop all the others, and it never holds a secret.

use std::collections::{HashMap, HashSet};
use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::admission::{Admitted, Material, admit_jwk, names, one_algorithm};
use super::jws::show;
use super::{algorithm_name, json, pem};
use crate::types::secret::{self, Secret};

/// One key that verifies.
pub struct Key {
    pub kid: Option<String>,
    pub algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    /// Of all that it is: two keys with one fingerprint are the same.
    fingerprint: [u8; 32],
}

/// By which key a token was found good.
#[derive(Clone, Debug)]
pub struct Signer {
    fingerprint: [u8; 32],
    /// The token said which one.
    is_named: bool,
}

/// No key material, though public keys would do no harm: an HMAC secret is a key too.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {})", self.kid, algorithm_name(self.algorithm))
    }
}

impl Key {
    pub(super) fn new(
        kid: Option<String>,
        algorithm: Algorithm,
        decoding: DecodingKey,
        material: &[impl AsRef<[u8]>],
    ) -> Self {
        let mut parts = vec![algorithm_name(algorithm).as_bytes(), if kid.is_some() { b"kid" } else { b"" }];
        parts.push(kid.as_deref().unwrap_or_default().as_bytes());
        parts.extend(material.iter().map(AsRef::as_ref));
        // Each part with its length, so that none can run into the next.
        let lens: Vec<_> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let framed: Vec<&[u8]> = lens.iter().zip(&parts).flat_map(|(len, part)| [&len[..], part]).collect();
        Key { fingerprint: secret::digest(&framed), kid, algorithm, decoding }
    }

    /// That of a token, which has named it or not.
    pub(super) fn signer(&self, is_named: bool) -> Signer {
        Signer { fingerprint: self.fingerprint, is_named }
    }

    /// From one JSON Web Key that has to be fit.
    pub(super) fn from_jwk(jwk: &Value, allowed: &[Algorithm]) -> Result<Self, String> {
        match admit_entry(jwk, allowed)? {
            Admitted::Key(key) => Ok(key),
            Admitted::LeftOut(why) => Err(format!("the key {why}")),
        }
    }
}

/// The keys of one issuer.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    /// The names of keys that were ended before their time.
    revoked: Vec<String>,
}

impl KeySet {
    /// The keys that may have signed a token with this `kid` and algorithm. A token without a `kid` is tried only where
    /// it is clear which key is meant: the one key of that algorithm.
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithm == algorithm);
        match kid {
            Some(kid) => fitting.find(|key| key.kid.as_deref().is_none_or(|known| known == kid)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }

    /// Would [`KeySet::find`] answer the same key again? A name has one key only; without one, there must be no other of its
    /// algorithm.
    pub(super) fn still_finds(&self, signer: &Signer) -> bool {
        let Some(same) = self.keys.iter().find(|key| key.fingerprint == signer.fingerprint) else { return false };
        signer.is_named || self.keys.iter().filter(|key| key.algorithm == same.algorithm).count() == 1
    }

    /// Tokens of these keys, none of which is among them, are refused by that name.
    pub fn refusing(self, revoked: Vec<String>) -> Self {
        KeySet { revoked, ..self }
    }

    pub fn is_revoked(&self, kid: &str) -> bool {
        self.revoked.iter().any(|revoked| revoked == kid)
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Before the first set of an issuer has come.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Is every key of `other` one of these?
    pub fn has_all(&self, other: &KeySet) -> bool {
        other.keys.iter().all(|key| self.keys.iter().any(|own| own.fingerprint == key.fingerprint))
    }

    /// The operator's own JSON Web Key Set (RFC 7517). `allowed` are the issuer's algorithms; keys that none of them can
    /// use are left out, keys that are dangerous are an error. At least one key must remain.
    pub fn from_jwks(text: &str, allowed: &[Algorithm]) -> Result<Self, String> {
        let entries = entries(text)?;
        refuse_mixture(&entries)?;
        let mut set = KeySetBuilder::default();
        for (place, entry) in entries.iter().enumerate() {
            set.add(place, entry, admit_entry(entry, allowed).map_err(|fault| at(place, entry, &fault))?);
        }
        set.refuse_doubtful()?;
        set.finish(allowed)
    }

    /// A JWKS that was fetched, and what is wrong in it. Dangerous keys are left out, and so is every `kty: oct`: a secret
    /// that is published is none.
    pub fn from_remote_jwks(text: &str, allowed: &[Algorithm]) -> Result<(Self, Vec<String>), String> {
        let mut set = KeySetBuilder::default();
        for (place, entry) in entries(text)?.iter().enumerate() {
            match admit_entry(entry, allowed) {
                _ if is_secret(entry) => set.warnings.push(at(place, entry, "a published secret is nobody's")),
                Ok(admitted) => set.add(place, entry, admitted),
                Err(fault) => set.warnings.push(at(place, entry, &fault)),
            }
        }
        set.drop_doubtful();
        let warnings = std::mem::take(&mut set.warnings);
        match set.finish(allowed) {
            Ok(keys) => Ok((keys, warnings)),
            Err(fault) if warnings.is_empty() => Err(fault),
            Err(fault) => Err(format!("{fault}; {}", some_of(&warnings))),
        }
    }

    pub(super) fn from_keys(keys: Vec<Key>) -> Result<Self, String> {
        let set = KeySetBuilder { keys, ..KeySetBuilder::default() };
        set.refuse_doubtful()?;
        set.finish(&[])
    }

    /// From one PEM public key (`PUBLIC KEY`, `RSA PUBLIC KEY`) or certificate.
    pub fn from_pem(text: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        let material = pem::read(text)?;
        let algorithm = one_algorithm(material.algorithms(), allowed)?;
        Ok(KeySet { keys: vec![material.admit(None, algorithm)?], ..KeySet::default() })
    }

    /// From a shared secret. Anybody who can check such a token can also forge it.
    pub fn from_secret(secret: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        let material = Material::Secret(Secret::new(secret.to_vec()));
        let algorithm = one_algorithm(material.algorithms(), allowed)?;
        Ok(KeySet { keys: vec![material.admit(None, algorithm)?], ..KeySet::default() })
    }
}

fn entries(text: &str) -> Result<Vec<Value>, String> {
    let set = json::object(text.as_bytes()).map_err(|error| format!("this is not JSON: {error}"))?;
    match set.get("keys") {
        Some(Value::Array(entries)) => Ok(entries.clone()),
        _ => Err("a JWKS is an object with the array \"keys\"".into()),
    }
}

fn admit_entry(entry: &Value, allowed: &[Algorithm]) -> Result<Admitted, String> {
    admit_jwk(entry.as_object().ok_or("this is not an object")?, allowed)
}

/// "key 2 (kid "a"): …"
fn at(place: usize, entry: &Value, what: &str) -> String {
    match entry.get("kid").and_then(Value::as_str) {
        Some(kid) => format!("key {place} (kid {}): {what}", show(Some(kid))),
        None => format!("key {place}: {what}"),
    }
}

fn is_secret(entry: &Value) -> bool {
    entry.get("kty").is_some_and(|kty| kty == "oct")
}

/// A secret among public keys was published, or is about to be.
fn refuse_mixture(entries: &[Value]) -> Result<(), String> {
    match entries.iter().any(is_secret) && !entries.iter().all(is_secret) {
        true => Err("shared secrets (kty oct) and public keys are mixed".into()),
        false => Ok(()),
    }
}

/// A set in the making.
#[derive(Default)]
struct KeySetBuilder {
    keys: Vec<Key>,
    /// Harmless, and of interest only if nothing else is there.
    left_out: Vec<String>,
    warnings: Vec<String>,
}

impl KeySetBuilder {
    fn add(&mut self, place: usize, entry: &Value, admitted: Admitted) {
        match admitted {
            Admitted::Key(key) => self.keys.push(key),
            Admitted::LeftOut(why) => self.left_out.push(at(place, entry, &format!("it {why}"))),
        }
    }

    /// How many keys share the `kid` of each.
    fn namesakes(&self) -> HashMap<&str, usize> {
        let mut count = HashMap::new();
        for kid in self.keys.iter().filter_map(|key| key.kid.as_deref()) {
            *count.entry(kid).or_default() += 1;
        }
        count
    }

    fn refuse_doubtful(&self) -> Result<(), String> {
        if let Some((kid, _)) = self.namesakes().into_iter().find(|(_, count)| *count > 1) {
            return Err(format!("two keys have the kid {kid:?}"));
        }
        match self.keys.len() > 1 && self.keys.iter().any(|key| key.kid.is_none()) {
            true => Err("with several keys, each needs a kid".into()),
            false => Ok(()),
        }
    }

    /// Nobody can tell which key is meant by a `kid` that two of them have. The same key twice is no doubt.
    fn drop_doubtful(&mut self) {
        let mut seen = HashSet::new();
        self.keys.retain(|key| seen.insert(key.fingerprint));
        let several = self.keys.len() > 1;
        let doubtful: Vec<String> =
            self.namesakes().into_iter().filter(|(_, count)| *count > 1).map(|(kid, _)| kid.to_owned()).collect();
        self.warnings.extend(doubtful.iter().map(|kid| format!("two keys have the kid {kid:?}")));
        if several && self.keys.iter().any(|key| key.kid.is_none()) {
            self.warnings.push("a key among several has no kid".into());
        }
        self.keys.retain(|key| match &key.kid {
            Some(kid) => !doubtful.contains(kid),
            None => !several,
        });
    }

    fn finish(self, allowed: &[Algorithm]) -> Result<KeySet, String> {
        if !self.keys.is_empty() {
            return Ok(KeySet { keys: self.keys, ..KeySet::default() });
        }
        let none = format!("there is no key that can be used with {}", names(allowed));
        match self.left_out.is_empty() {
            true => Err(none),
            false => Err(format!("{none}: {}", some_of(&self.left_out))),
        }
    }
}

/// Enough of them to see what is wrong.
fn some_of(messages: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = messages.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    match messages.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// HMAC: whoever verifies can sign.
pub fn is_hmac(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

#[cfg(test)]
mod tests;

//! Errors of keys and of sets of keys. The text is for the operator who configured the keys.

use std::fmt;

use super::algorithm::{Algorithm, algorithm_name};
use super::json::NotAString;
use crate::types::pem::LostSections;

/// Why one key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key is not a JSON object")]
    NotAnObject,
    #[error(transparent)]
    NotAString(#[from] NotAString),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is not base64url without padding")]
    NotBase64Url(&'static str),
    #[error("key_ops is not an array")]
    KeyOpsNotArray,
    /// Its algorithm or purpose excludes it. The text follows "the key": "is for encryption".
    #[error("the key {0}")]
    Unsuitable(String),
    #[error("this is a private key, and any reader of it can sign tokens; expected its public key")]
    PrivateKey,
    #[error("{name} has {len} bytes instead of {expected}")]
    CoordinateSize { name: &'static str, len: usize, expected: usize },
    #[error("the key is not a point on the curve {0}")]
    NotOnCurve(&'static str),
    #[error("the key is not an Ed25519 key, which has 32 bytes")]
    NotEd25519,
    #[error("an RSA key of {bits} bits is too weak; use at least {min}")]
    RsaTooSmall { bits: usize, min: usize },
    #[error("an RSA key of {bits} bits is too slow; use at most {max}")]
    RsaTooLarge { bits: usize, max: usize },
    #[error("the RSA modulus is even, so that any attacker can factor it; create a new key")]
    RsaEvenModulus,
    /// ROCA, CVE-2017-15361.
    #[error(
        "a chip with a defect made this RSA key (ROCA, CVE-2017-15361), so that attackers can factor it; create a new \
         key in software"
    )]
    RsaFromWeakChip,
    #[error("the RSA exponent is below 3, so that any attacker can forge signatures; use 65537")]
    RsaExponentTooSmall,
    #[error("an RSA exponent of {bits} bits is too slow; use 65537, or at most {max} bits")]
    RsaExponentTooLarge { bits: usize, max: usize },
    #[error("the RSA exponent is even; use 65537")]
    RsaEvenExponent,
    #[error("a secret of {len} bytes is too short for {}; use at least {min}", algorithm_name(*.algorithm))]
    SecretTooShort { len: usize, algorithm: Algorithm, min: usize },
    #[error("alg {0} does not fit this type of key")]
    AlgorithmMismatch(&'static str),
    #[error("none of the issuer's algorithms fits this key")]
    NoAlgorithm,
    #[error(
        "the key has no alg, and both {} and {} fit; give it an alg, or allow only one of them",
        algorithm_name(*.0),
        algorithm_name(*.1)
    )]
    AmbiguousAlgorithm(Algorithm, Algorithm),
    #[error("this is not a PEM public key; expected BEGIN PUBLIC KEY, BEGIN RSA PUBLIC KEY or BEGIN CERTIFICATE")]
    NotPem,
    #[error("the PEM file has several keys; use a JWKS, which can hold several, each with a kid")]
    SeveralPemKeys,
    #[error(transparent)]
    LostPemSections(LostSections),
    #[error("the type of this key is not supported; expected RSA, P-256, P-384 or Ed25519")]
    UnsupportedPemKey,
}

/// Why a set of keys cannot be used. The text of each error already contains its cause, so there is no further source
/// to print.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    #[error("this is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("a JWKS is a JSON object with the array \"keys\"")]
    NotAJwks,
    #[error(
        "shared secrets (kty oct) and public keys are mixed, so that a secret may be published; use separate files"
    )]
    MixedSecrets,
    #[error("two keys have the kid {0:?}")]
    DuplicateKid(String),
    #[error("the set has several keys; each needs a kid")]
    MissingKid,
    /// A single key, from PEM or a shared secret.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A key of a JWKS.
    #[error("{0}: {1}")]
    Entry(JwksEntry, KeyError),
    /// No key is left. `details` says for each key why, or nothing if the set is empty.
    #[error("no key can be used with {algorithms}{}", reasons(.details))]
    NoUsableKey { algorithms: String, details: Vec<String> },
}

/// A position in a JWKS: `key 2 (kid "a")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksEntry {
    pub index: usize,
    /// Quoted and shortened.
    pub kid: Option<String>,
}

impl fmt::Display for JwksEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kid {
            Some(kid) => write!(f, "key {} (kid {kid})", self.index),
            None => write!(f, "key {}", self.index),
        }
    }
}

/// What follows the text of an error: the first details, and how many more there are.
fn reasons(details: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = details.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    match details.len() {
        0 => String::new(),
        1..=SHOWN => format!(": {shown}"),
        all => format!(": {shown}; and {} more", all - SHOWN),
    }
}

//! Errors of keys and of sets of keys. The text is for the operator who configured the keys.

use std::fmt;

use super::algorithm::{Algorithm, algorithm_name};
use super::json::NotAString;
use crate::types::pem::LostSections;

/// Why one key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    NotAnObject,
    NotAString(NotAString),
    Missing(&'static str),
    NotBase64Url(&'static str),
    KeyOpsNotArray,
    /// Its algorithm or purpose excludes it. The text follows "the key": "is for encryption".
    Unsuitable(String),
    PrivateKey,
    CoordinateSize {
        name: &'static str,
        len: usize,
        expected: usize,
    },
    NotOnCurve(&'static str),
    NotEd25519,
    RsaTooSmall {
        bits: usize,
        min: usize,
    },
    RsaTooLarge {
        bits: usize,
        max: usize,
    },
    RsaEvenModulus,
    /// ROCA, CVE-2017-15361.
    RsaFromWeakChip,
    RsaExponentTooSmall,
    RsaExponentTooLarge {
        bits: usize,
        max: usize,
    },
    RsaEvenExponent,
    SecretTooShort {
        len: usize,
        algorithm: Algorithm,
        min: usize,
    },
    AlgorithmMismatch(&'static str),
    NoAlgorithm,
    AmbiguousAlgorithm(Algorithm, Algorithm),
    NotPem,
    SeveralPemKeys,
    LostPemSections(LostSections),
    UnsupportedPemKey,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::NotAnObject => f.write_str("the key is not a JSON object"),
            KeyError::NotAString(error) => error.fmt(f),
            KeyError::Missing(name) => write!(f, "{name} is missing"),
            KeyError::NotBase64Url(name) => write!(f, "{name} is not base64url without padding"),
            KeyError::KeyOpsNotArray => f.write_str("key_ops is not an array"),
            KeyError::Unsuitable(why) => write!(f, "the key {why}"),
            KeyError::PrivateKey => {
                f.write_str("this is a private key, and any reader of it can sign tokens; expected its public key")
            }
            KeyError::CoordinateSize { name, len, expected } => {
                write!(f, "{name} has {len} bytes instead of {expected}")
            }
            KeyError::NotOnCurve(curve) => write!(f, "the key is not a point on the curve {curve}"),
            KeyError::NotEd25519 => f.write_str("the key is not an Ed25519 key, which has 32 bytes"),
            KeyError::RsaTooSmall { bits, min } => {
                write!(f, "an RSA key of {bits} bits is too weak; use at least {min}")
            }
            KeyError::RsaTooLarge { bits, max } => {
                write!(f, "an RSA key of {bits} bits is too slow; use at most {max}")
            }
            KeyError::RsaEvenModulus => {
                f.write_str("the RSA modulus is even, so that any attacker can factor it; create a new key")
            }
            KeyError::RsaFromWeakChip => f.write_str(
                "a chip with a defect made this RSA key (ROCA, CVE-2017-15361), so that attackers can factor it; \
                 create a new key in software",
            ),
            KeyError::RsaExponentTooSmall => {
                f.write_str("the RSA exponent is below 3, so that any attacker can forge signatures; use 65537")
            }
            KeyError::RsaExponentTooLarge { bits, max } => {
                write!(f, "an RSA exponent of {bits} bits is too slow; use 65537, or at most {max} bits")
            }
            KeyError::RsaEvenExponent => f.write_str("the RSA exponent is even; use 65537"),
            KeyError::SecretTooShort { len, algorithm, min } => {
                let name = algorithm_name(*algorithm);
                write!(f, "a secret of {len} bytes is too short for {name}; use at least {min}")
            }
            KeyError::AlgorithmMismatch(name) => write!(f, "alg {name} does not fit this type of key"),
            KeyError::NoAlgorithm => f.write_str("none of the issuer's algorithms fits this key"),
            KeyError::AmbiguousAlgorithm(a, b) => {
                let (a, b) = (algorithm_name(*a), algorithm_name(*b));
                write!(f, "the key has no alg, and both {a} and {b} fit; give it an alg, or allow only one of them")
            }
            KeyError::NotPem => f.write_str(
                "this is not a PEM public key; expected BEGIN PUBLIC KEY, BEGIN RSA PUBLIC KEY or BEGIN CERTIFICATE",
            ),
            KeyError::SeveralPemKeys => {
                f.write_str("the PEM file has several keys; use a JWKS, which can hold several, each with a kid")
            }
            KeyError::LostPemSections(lost) => lost.fmt(f),
            KeyError::UnsupportedPemKey => {
                f.write_str("the type of this key is not supported; expected RSA, P-256, P-384 or Ed25519")
            }
        }
    }
}

impl std::error::Error for KeyError {}

impl From<NotAString> for KeyError {
    fn from(error: NotAString) -> Self {
        KeyError::NotAString(error)
    }
}

/// Why a set of keys cannot be used.
#[derive(Debug)]
pub enum KeySetError {
    NotJson(serde_json::Error),
    NotAJwks,
    MixedSecrets,
    DuplicateKid(String),
    MissingKid,
    /// A single key, from PEM or a shared secret.
    Key(KeyError),
    /// A key of a JWKS.
    Entry(JwksEntry, KeyError),
    /// No key is left. `details` says for each key why, or nothing if the set is empty.
    NoUsableKey {
        algorithms: String,
        details: Vec<String>,
    },
}

impl fmt::Display for KeySetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySetError::NotJson(error) => write!(f, "this is not JSON: {error}"),
            KeySetError::NotAJwks => f.write_str("a JWKS is a JSON object with the array \"keys\""),
            KeySetError::MixedSecrets => f.write_str(
                "shared secrets (kty oct) and public keys are mixed, so that a secret may be published; \
                 use separate files",
            ),
            KeySetError::DuplicateKid(kid) => write!(f, "two keys have the kid {kid:?}"),
            KeySetError::MissingKid => f.write_str("the set has several keys; each needs a kid"),
            KeySetError::Key(error) => error.fmt(f),
            KeySetError::Entry(entry, error) => write!(f, "{entry}: {error}"),
            KeySetError::NoUsableKey { algorithms, details } => {
                write!(f, "no key can be used with {algorithms}")?;
                match details.is_empty() {
                    true => Ok(()),
                    false => write!(f, ": {}", shortened(details)),
                }
            }
        }
    }
}

/// The text of each error already contains its cause, so there is no further source to print.
impl std::error::Error for KeySetError {}

impl From<KeyError> for KeySetError {
    fn from(error: KeyError) -> Self {
        KeySetError::Key(error)
    }
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

/// The first messages, and how many more there are.
fn shortened(messages: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = messages.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    match messages.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

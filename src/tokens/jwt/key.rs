//! One key that verifies signatures, and its fingerprint.

use std::fmt;

use jsonwebtoken::DecodingKey;

use super::algorithm::{Algorithm, algorithm_name};
use crate::types::secret;

/// A key that verifies signatures of exactly one algorithm.
#[derive(Clone)]
pub struct Key {
    pub kid: Option<String>,
    pub algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    /// Covers kid, algorithm and key material: keys with equal fingerprints are the same key.
    pub(super) fingerprint: [u8; 32],
}

/// The key that verified a token.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    pub(super) fingerprint: [u8; 32],
    /// True if the token named its key by `kid`.
    pub(super) has_kid: bool,
}

/// Prints no key material: an HMAC secret is a key too.
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
        // Each part is hashed with its length, so that two different lists of parts never hash the same bytes.
        let lens: Vec<_> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let framed: Vec<&[u8]> = lens.iter().zip(&parts).flat_map(|(len, part)| [&len[..], part]).collect();
        Key { fingerprint: secret::digest(&framed), kid, algorithm, decoding }
    }

    /// `has_kid`: whether the verified token named this key by `kid`.
    pub(super) fn signer(&self, has_kid: bool) -> Signer {
        Signer { fingerprint: self.fingerprint, has_kid }
    }
}

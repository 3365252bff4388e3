//! The bytes of a key, and whether a key made of them is safe.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, VerificationAlgorithm,
};
use jsonwebtoken::DecodingKey;

use super::algorithm::Algorithm;
use super::key::Key;
use super::key_error::KeyError;
use super::roca;
use crate::types::secret::Secret;

const RSA_MIN_BITS: usize = 2048;
/// Verifying with larger keys is slow enough for a denial of service.
const RSA_MAX_BITS: usize = 8192;
/// Larger exponents only make verification slower. The usual exponent is 65537.
const RSA_MAX_EXPONENT_BITS: usize = 32;

/// What a key consists of.
pub(super) enum KeyMaterial {
    /// Both without leading zeros: aws-lc rejects them, and some issuers write them.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point: 04, x, y.
    P256(Vec<u8>),
    /// An uncompressed point: 04, x, y.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Secret),
}

/// The one algorithm of a key: among those `possible` for it, the only one that the configuration allows. The token
/// never chooses.
pub(super) fn only_algorithm(possible: &[Algorithm], allowed: &[Algorithm]) -> Result<Algorithm, KeyError> {
    let mut fitting = allowed.iter().filter(|algorithm| possible.contains(algorithm));
    match (fitting.next(), fitting.next()) {
        (Some(algorithm), None) => Ok(*algorithm),
        (None, _) => Err(KeyError::NoAlgorithm),
        (Some(a), Some(b)) => Err(KeyError::AmbiguousAlgorithm(*a, *b)),
    }
}

impl KeyMaterial {
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Self {
        KeyMaterial::Rsa {
            modulus: without_leading_zeros(modulus).to_vec(),
            exponent: without_leading_zeros(exponent).to_vec(),
        }
    }

    pub(super) fn algorithms(&self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            KeyMaterial::Rsa { .. } => &[RS256, RS384, RS512, PS256, PS384, PS512],
            KeyMaterial::P256(_) => &[ES256],
            KeyMaterial::P384(_) => &[ES384],
            KeyMaterial::Ed25519(_) => &[EdDSA],
            KeyMaterial::Secret(_) => &[HS256, HS384, HS512],
        }
    }

    /// A key for this algorithm, one of [`KeyMaterial::algorithms`], if the material is strong and well formed.
    pub(super) fn into_key(self, kid: Option<String>, algorithm: Algorithm) -> Result<Key, KeyError> {
        match self {
            KeyMaterial::Rsa { modulus, exponent } => {
                check_modulus(&modulus)?;
                check_exponent(&exponent)?;
                let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
                Ok(Key::new(kid, algorithm, key, &[&modulus, &exponent]))
            }
            KeyMaterial::P256(point) => {
                check_parses(&ECDSA_P256_SHA256_FIXED, &point, KeyError::NotOnCurve("P-256"))?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ec_der(&point), &[&point]))
            }
            KeyMaterial::P384(point) => {
                check_parses(&ECDSA_P384_SHA384_FIXED, &point, KeyError::NotOnCurve("P-384"))?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ec_der(&point), &[&point]))
            }
            KeyMaterial::Ed25519(key) => {
                check_parses(&ED25519, &key, KeyError::NotEd25519)?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ed_der(&key), &[&key]))
            }
            KeyMaterial::Secret(secret) => {
                check_secret_len(secret.expose().len(), algorithm)?;
                let key = DecodingKey::from_secret(secret.expose());
                Ok(Key::new(kid, algorithm, key, &[secret.expose()]))
            }
        }
    }
}

fn check_parses(algorithm: &'static dyn VerificationAlgorithm, key: &[u8], error: KeyError) -> Result<(), KeyError> {
    ParsedPublicKey::new(algorithm, key).map(drop).map_err(|_| error)
}

fn check_modulus(modulus: &[u8]) -> Result<(), KeyError> {
    let bits = bits(modulus);
    if bits < RSA_MIN_BITS {
        return Err(KeyError::RsaTooSmall { bits, min: RSA_MIN_BITS });
    }
    if bits > RSA_MAX_BITS {
        return Err(KeyError::RsaTooLarge { bits, max: RSA_MAX_BITS });
    }
    if !is_odd(modulus) {
        return Err(KeyError::RsaEvenModulus);
    }
    if roca::is_from_weak_chip(modulus) {
        return Err(KeyError::RsaFromWeakChip);
    }
    Ok(())
}

/// With the exponent 1 every message is its own signature. An even exponent is never a valid RSA key.
fn check_exponent(exponent: &[u8]) -> Result<(), KeyError> {
    match bits(exponent) {
        2..=RSA_MAX_EXPONENT_BITS if is_odd(exponent) => Ok(()),
        0 | 1 => Err(KeyError::RsaExponentTooSmall),
        bits if bits > RSA_MAX_EXPONENT_BITS => Err(KeyError::RsaExponentTooLarge { bits, max: RSA_MAX_EXPONENT_BITS }),
        _ => Err(KeyError::RsaEvenExponent),
    }
}

/// A secret must be at least as long as the hash (RFC 7518 section 3.2).
fn check_secret_len(len: usize, algorithm: Algorithm) -> Result<(), KeyError> {
    let min = match algorithm {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    };
    if len < min { Err(KeyError::SecretTooShort { len, algorithm, min }) } else { Ok(()) }
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn bits(number: &[u8]) -> usize {
    let number = without_leading_zeros(number);
    number.first().map_or(0, |top| number.len() * 8 - top.leading_zeros() as usize)
}

fn is_odd(number: &[u8]) -> bool {
    number.last().is_some_and(|byte| byte & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_is_odd_and_has_2_to_32_bits() {
        for (exponent, expected) in [
            (&[1, 0, 1][..], None),
            (&[3], None),
            (&[0xff, 0xff, 0xff, 0xff], None),
            (&[0xff, 0xff, 0xff, 0xfe], Some("even")),
            (&[2], Some("even")),
            (&[1], Some("too small")),
            (&[0], Some("too small")),
            (&[1, 0, 0, 0, 1], Some("too large")),
        ] {
            let found = match check_exponent(exponent) {
                Ok(()) => None,
                Err(KeyError::RsaEvenExponent) => Some("even"),
                Err(KeyError::RsaExponentTooSmall) => Some("too small"),
                Err(KeyError::RsaExponentTooLarge { .. }) => Some("too large"),
                Err(_) => Some("another"),
            };
            assert_eq!(found, expected, "{exponent:02x?}");
        }
    }
}

//! The gateway's signing keys: created, read from PEM, and used to sign access tokens.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING};
use aws_lc_rs::signature::{EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{EncodingKey, Header};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Map, Value};

use super::algorithm::{Algorithm, algorithm_name};
use super::der;
use super::key_error::KeySetError;
use super::key_set::KeySet;
use super::public_key::PublicKey;
use crate::types::secret::Secret;

/// The algorithms that `tokens.algorithm` accepts.
pub const SIGNING: &[Algorithm] = &[Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA, Algorithm::RS256];

/// A key pair that signs access tokens.
pub struct SigningKey {
    /// The RFC 7638 thumbprint, so that a key has the same kid everywhere.
    pub kid: String,
    pub algorithm: Algorithm,
    encoding: EncodingKey,
    public: Jwk,
}

/// Why a key cannot sign. The text of each error already contains its cause, so there is no further source to print.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The PEM is not a PKCS#8 private key for this algorithm.
    #[error("this is not a PKCS#8 private key for {}; expected PEM with BEGIN PRIVATE KEY", algorithm_name(*.0))]
    WrongKey(Algorithm),
    /// The key is not safe to verify with, so it must not sign.
    #[error(transparent)]
    UnsafeKey(KeySetError),
    #[error("the gateway cannot sign tokens with {}", algorithm_name(*.0))]
    UnsupportedAlgorithm(Algorithm),
    #[error("cannot create a signing key for {}", algorithm_name(*.0))]
    KeyGeneration(Algorithm),
    #[error("cannot sign the token: {0}")]
    Signing(jsonwebtoken::errors::Error),
}

impl SigningKey {
    /// Reads a private key in PKCS#8 PEM.
    pub fn from_pem(pem: &[u8], algorithm: Algorithm) -> Result<Self, SigningError> {
        let wrong_key = || SigningError::WrongKey(algorithm);
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| wrong_key())?;
        let pkcs8 = pkcs8.secret_pkcs8_der();
        let encoding = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_der(pkcs8),
            Algorithm::EdDSA => EncodingKey::from_ed_der(pkcs8),
            _ => EncodingKey::from_rsa_der(der::pkcs8_key(pkcs8).ok_or_else(wrong_key)?),
        };
        let mut public = Jwk::from_encoding_key(&encoding, algorithm).map_err(|_| wrong_key())?;
        let kid = public.thumbprint(ThumbprintHash::SHA256).map_err(|_| wrong_key())?;
        public.common.key_id = Some(kid.clone());
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        let key = SigningKey { kid, algorithm, encoding, public };
        // A key that is too weak to verify with must not sign.
        verifying_keys([&key]).map_err(SigningError::UnsafeKey)?;
        key.sign(&Map::new())?;
        Ok(key)
    }

    /// The key in `/.well-known/jwks.json`: `kid`, `alg`, `use`, and the public parameters.
    pub fn public_jwk(&self) -> Value {
        serde_json::to_value(&self.public).unwrap_or_default()
    }

    /// A compact JWS over the claims with `typ: at+jwt` (RFC 9068 section 2.1).
    pub fn sign(&self, claims: &Map<String, Value>) -> Result<String, SigningError> {
        self.sign_as("at+jwt", &self.kid, claims)
    }

    /// As [`SigningKey::sign`], with another type of token. `kid`: the name of the key for the server that verifies it.
    pub fn sign_as(&self, typ: &str, kid: &str, claims: &Map<String, Value>) -> Result<String, SigningError> {
        let mut header = Header::new(self.algorithm);
        header.typ = Some(typ.to_owned());
        header.kid = Some(kid.to_owned());
        jsonwebtoken::encode(&header, claims, &self.encoding).map_err(SigningError::Signing)
    }

    pub fn public(&self) -> PublicKey {
        PublicKey { kid: self.kid.clone(), algorithm: self.algorithm, jwk: self.public_jwk() }
    }
}

/// The keys that verify the signatures of these keys.
pub fn verifying_keys<'k>(keys: impl IntoIterator<Item = &'k SigningKey>) -> Result<KeySet, KeySetError> {
    PublicKey::set(&keys.into_iter().map(SigningKey::public).collect::<Vec<_>>())
}

/// A new private key in PKCS#8 PEM.
pub fn generate_pem(algorithm: Algorithm) -> Result<Secret, SigningError> {
    let der = match algorithm {
        Algorithm::ES256 => ecdsa_der(&ECDSA_P256_SHA256_FIXED_SIGNING),
        Algorithm::ES384 => ecdsa_der(&ECDSA_P384_SHA384_FIXED_SIGNING),
        Algorithm::EdDSA => ed25519_der(),
        Algorithm::RS256 => rsa_der(),
        _ => return Err(SigningError::UnsupportedAlgorithm(algorithm)),
    };
    der.map(|der| private_key_pem(&der)).ok_or(SigningError::KeyGeneration(algorithm))
}

fn ecdsa_der(algorithm: &'static EcdsaSigningAlgorithm) -> Option<Secret> {
    let pair = EcdsaKeyPair::generate(algorithm).ok()?;
    Some(Secret::new(pair.to_pkcs8v1().ok()?.as_ref().to_vec()))
}

fn ed25519_der() -> Option<Secret> {
    let pair = Ed25519KeyPair::generate().ok()?;
    Some(Secret::new(pair.to_pkcs8v1().ok()?.as_ref().to_vec()))
}

fn rsa_der() -> Option<Secret> {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).ok()?;
    Some(Secret::new(pair.as_der().ok()?.as_ref().to_vec()))
}

/// PEM with lines of 64 characters (RFC 7468).
fn private_key_pem(der: &Secret) -> Secret {
    let mut body = STANDARD.encode(der.expose());
    let lines = body.len().div_ceil(64);
    for line in (1..lines).rev() {
        body.insert(line * 64, '\n');
    }
    Secret::new(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_of_each_algorithm_signs_and_verifies() {
        for algorithm in SIGNING {
            let pem = generate_pem(*algorithm).expect("every listed algorithm can create a key");
            let key = SigningKey::from_pem(pem.expose(), *algorithm).expect("reads its own key");
            let jwt = key.sign(&Map::new()).expect("signs");
            let (message, signature) = jwt.rsplit_once('.').expect("three segments");
            let set = verifying_keys([&key]).expect("the key is strong enough");
            let found = set.find(Some(&key.kid), *algorithm).expect("found by its kid");
            let valid = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &found.decoding, *algorithm);
            assert!(valid.is_ok_and(|valid| valid), "{algorithm:?}");
            assert!(key.public_jwk().get("d").is_none(), "the private part is not published");
        }
    }

    #[test]
    fn the_pem_of_a_key_has_lines_of_64_characters() {
        let pem = generate_pem(Algorithm::RS256).expect("a key");
        let text = str::from_utf8(pem.expose()).expect("text");
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("-----")).collect();
        let (last, whole) = lines.split_last().expect("lines");
        assert!(whole.len() > 20 && whole.iter().all(|line| line.len() == 64) && last.len() <= 64);
    }

    #[test]
    fn an_error_names_the_algorithm() {
        let name = |error: fn(Algorithm) -> SigningError| error(Algorithm::ES384).to_string();
        let errors = [SigningError::WrongKey, SigningError::UnsupportedAlgorithm, SigningError::KeyGeneration];
        assert!(errors.iter().all(|error| name(*error).contains("ES384")));
    }

    #[test]
    fn a_key_of_another_algorithm_is_rejected() {
        for made in SIGNING {
            let pem = generate_pem(*made).expect("creates a key");
            for algorithm in SIGNING.iter().filter(|algorithm| *algorithm != made) {
                let result = SigningKey::from_pem(pem.expose(), *algorithm);
                assert!(matches!(result, Err(SigningError::WrongKey(_))), "{made:?} as {algorithm:?}");
            }
        }
    }
}

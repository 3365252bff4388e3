//! The gateway's own signing keys, and signing with them.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING};
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Map, Value};

use super::key_set::{Key, KeySet};
use crate::types::secret::Secret;

/// The algorithms that `tokens.algorithm` may name.
pub const SIGNING: &[Algorithm] = &[Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA, Algorithm::RS256];

/// A key pair that signs access tokens.
pub struct SigningKey {
    /// RFC 7638 thumbprint: the same key has the same name everywhere.
    pub kid: String,
    pub algorithm: Algorithm,
    encoding: EncodingKey,
    public: Jwk,
}

impl SigningKey {
    /// From a private key in PKCS#8 PEM.
    pub fn from_pem(pem: &[u8], algorithm: Algorithm) -> Result<Self, String> {
        let encoding = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem),
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem),
            _ => EncodingKey::from_rsa_pem(pem),
        };
        let name = super::algorithm_name(algorithm);
        let unfit = |_| format!("this is not a PKCS#8 private key for {name}");
        let encoding = encoding.map_err(unfit)?;
        let mut public = Jwk::from_encoding_key(&encoding, algorithm).map_err(unfit)?;
        let kid = public.thumbprint(ThumbprintHash::SHA256).map_err(unfit)?;
        public.common.key_id = Some(kid.clone());
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        let key = SigningKey { kid, algorithm, encoding, public };
        // A key that is too weak to verify with must not sign; a curve of the wrong size shows here too.
        verifying_keys([&key])?;
        key.sign(&Map::new())?;
        Ok(key)
    }

    /// For `/.well-known/jwks.json`: `kid`, `alg`, `use`, and the public parameters.
    pub fn public_jwk(&self) -> Value {
        serde_json::to_value(&self.public).unwrap_or_default()
    }

    /// A compact JWS over the claims with `typ: at+jwt` (RFC 9068 section 2.1).
    pub fn sign(&self, claims: &Map<String, Value>) -> Result<String, String> {
        let mut header = Header::new(self.algorithm);
        header.typ = Some("at+jwt".into());
        header.kid = Some(self.kid.clone());
        jsonwebtoken::encode(&header, claims, &self.encoding).map_err(|error| format!("signing failed: {error}"))
    }
}

/// The keys that verify what any of these signs.
pub fn verifying_keys<'k>(keys: impl IntoIterator<Item = &'k SigningKey>) -> Result<KeySet, String> {
    let keys = keys.into_iter().map(|key| Key::from_jwk(&key.public_jwk(), &[key.algorithm]));
    KeySet::from_keys(keys.collect::<Result<_, _>>()?)
}

/// A new private key in PKCS#8 PEM.
pub fn generate_pem(algorithm: Algorithm) -> Result<Secret, String> {
    let failed = |_| "the key could not be made".to_string();
    let der = match algorithm {
        Algorithm::ES256 => ecdsa_der(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
        Algorithm::ES384 => ecdsa_der(&ECDSA_P384_SHA384_FIXED_SIGNING)?,
        Algorithm::EdDSA => {
            let pair = Ed25519KeyPair::generate().map_err(failed)?;
            Secret::new(pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec())
        }
        Algorithm::RS256 => {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
            Secret::new(pair.as_der().map_err(failed)?.as_ref().to_vec())
        }
        _ => return Err(format!("tokens cannot be signed with {}", super::algorithm_name(algorithm))),
    };
    Ok(private_key_pem(&der))
}

fn ecdsa_der(algorithm: &'static aws_lc_rs::signature::EcdsaSigningAlgorithm) -> Result<Secret, String> {
    let failed = |_| "the key could not be made".to_string();
    let pair = EcdsaKeyPair::generate(algorithm).map_err(failed)?;
    Ok(Secret::new(pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec()))
}

fn private_key_pem(der: &Secret) -> Secret {
    let mut body = base64::engine::general_purpose::STANDARD.encode(der.expose());
    // RFC 7468: lines of 64 characters.
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
    fn each_algorithm_makes_a_key_that_signs_and_verifies() {
        for algorithm in SIGNING {
            let pem = generate_pem(*algorithm).expect("every listed algorithm can make a key");
            let key = SigningKey::from_pem(pem.expose(), *algorithm).expect("it reads its own key");
            let jwt = key.sign(&Map::new()).expect("it signs");
            let (message, signature) = jwt.rsplit_once('.').expect("three segments");
            let set = verifying_keys([&key]).expect("it is strong enough");
            let found = set.find(Some(&key.kid), *algorithm).expect("by its kid");
            let good = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &found.decoding, *algorithm);
            assert!(good.is_ok_and(|good| good), "{algorithm:?}");
            assert!(key.public_jwk().get("d").is_none(), "the private part stays here");
        }
    }
}

//! One JSON Web Key (RFC 7517): is it safe, and can this issuer use it?
//!
//! A dangerous key is an error: see [`KeyMaterial::into_key`]. A key that the gateway merely cannot use, for encryption
//! or of an unknown type, is skipped: such keys do no harm in a set.

use serde_json::{Map, Value};

use super::algorithm::{Algorithm, algorithm_name, algorithm_named, algorithm_names};
use super::base64url::decode_segment;
use super::json::optional_str;
use super::key::Key;
use super::key_error::KeyError;
use super::key_material::{KeyMaterial, only_algorithm};
use crate::types::secret::Secret;

/// A key of a JWKS that is not dangerous.
pub(super) enum ParsedJwk {
    Key(Key),
    /// The gateway cannot use it. The text follows "the key": "is for encryption".
    Skipped(String),
}

/// Reads a key for one of the `allowed` algorithms. An error means that the key is dangerous.
pub(super) fn parse(jwk: &Value, allowed: &[Algorithm]) -> Result<ParsedJwk, KeyError> {
    let jwk = jwk.as_object().ok_or(KeyError::NotAnObject)?;
    // An encryption key may have a type that cannot be read here, so the purpose comes first.
    if let Some(purpose) = other_purpose(jwk)? {
        return Ok(ParsedJwk::Skipped(purpose));
    }
    let Some(material) = material(jwk)? else {
        let kind = ["kty", "crv"].map(|name| jwk.get(name).and_then(Value::as_str).unwrap_or_default());
        return Ok(ParsedJwk::Skipped(format!("has the unsupported type {:?}", kind.join(" ").trim_end())));
    };
    let possible = match optional_str(jwk, "alg")? {
        None => material.algorithms().to_vec(),
        Some(name) => match algorithm_named(name) {
            Some(named) if material.algorithms().contains(&named) => vec![named],
            Some(named) => return Err(KeyError::AlgorithmMismatch(algorithm_name(named))),
            None => return Ok(ParsedJwk::Skipped(format!("is for {name:?}"))),
        },
    };
    if !possible.iter().any(|algorithm| allowed.contains(algorithm)) {
        return Ok(ParsedJwk::Skipped(format!("is for {}", algorithm_names(&possible))));
    }
    let algorithm = only_algorithm(&possible, allowed)?;
    let kid = optional_str(jwk, "kid")?.map(str::to_owned);
    material.into_key(kid, algorithm).map(ParsedJwk::Key)
}

/// The purpose of a key that is not for verifying signatures, by `use` and `key_ops`.
fn other_purpose(jwk: &Map<String, Value>) -> Result<Option<String>, KeyError> {
    match optional_str(jwk, "use")? {
        None | Some("sig") => {}
        Some("enc") => return Ok(Some("is for encryption".into())),
        Some(other) => return Ok(Some(format!("is for {other:?}"))),
    }
    match jwk.get("key_ops") {
        None => Ok(None),
        Some(Value::Array(operations)) if operations.iter().any(|operation| operation == "verify") => Ok(None),
        Some(Value::Array(_)) => Ok(Some("is not for verifying".into())),
        Some(_) => Err(KeyError::KeyOpsNotArray),
    }
}

/// `None` for types that the gateway does not support, such as P-521 and Ed448.
fn material(jwk: &Map<String, Value>) -> Result<Option<KeyMaterial>, KeyError> {
    let kty = optional_str(jwk, "kty")?.ok_or(KeyError::Missing("kty"))?;
    let curve = optional_str(jwk, "crv")?;
    // `d` is the private half of a key pair: any reader of this set could sign tokens.
    if kty != "oct" && jwk.contains_key("d") {
        return Err(KeyError::PrivateKey);
    }
    Ok(Some(match (kty, curve) {
        ("RSA", _) => KeyMaterial::rsa(&bytes(jwk, "n")?, &bytes(jwk, "e")?),
        ("EC", Some("P-256")) => KeyMaterial::P256(point(jwk, 32)?),
        ("EC", Some("P-384")) => KeyMaterial::P384(point(jwk, 48)?),
        ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes(jwk, "x")?),
        ("oct", _) => KeyMaterial::Secret(Secret::new(bytes(jwk, "k")?)),
        _ => return Ok(None),
    }))
}

fn bytes(jwk: &Map<String, Value>, name: &'static str) -> Result<Vec<u8>, KeyError> {
    let text = optional_str(jwk, name)?.ok_or(KeyError::Missing(name))?;
    decode_segment(text).ok_or(KeyError::NotBase64Url(name))
}

/// The uncompressed form of the point: 04, x, y.
fn point(jwk: &Map<String, Value>, size: usize) -> Result<Vec<u8>, KeyError> {
    let mut point = vec![4];
    for name in ["x", "y"] {
        let coordinate = bytes(jwk, name)?;
        if coordinate.len() != size {
            return Err(KeyError::CoordinateSize { name, len: coordinate.len(), expected: size });
        }
        point.extend(coordinate);
    }
    Ok(point)
}

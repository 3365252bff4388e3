//! Which keys are fit to verify a signature: what a key is made of, and what that has to be.
//!
//! A key that is dangerous is an error: RSA below 2,048 bits or with an exponent that signs nothing, HMAC secrets shorter
//! than the hash, points that are not on their curve, private keys where public ones belong. A key that is merely not
//! ours to use, for encryption or of a kind we do not know, is left out: such keys do no harm in a set.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, VerificationAlgorithm,
};
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};

use super::jws::optional_str;
use super::key_set::Key;
use super::{Algorithm, algorithm_name, algorithm_named, decode_segment};
use crate::types::secret::Secret;

const RSA_MIN_BITS: usize = 2048;
/// RSA keys above this make a verification cost more than a denial of service needs.
const RSA_MAX_BITS: usize = 8192;
/// Exponents above this are of no use and only cost; the usual one is 65537.
const RSA_MAX_EXPONENT_BITS: usize = 32;

/// What became of one entry of a JWKS.
pub(super) enum Admitted {
    Key(Key),
    /// Not ours to use. The reason follows the name of the key in a sentence: "is for encryption".
    LeftOut(String),
}

/// One JSON Web Key (RFC 7517). An error for a key that is dangerous.
pub(super) fn admit_jwk(jwk: &Map<String, Value>, allowed: &[Algorithm]) -> Result<Admitted, String> {
    if let Some(purpose) = other_purpose(jwk)? {
        return Ok(Admitted::LeftOut(purpose));
    }
    let Some(material) = Material::of_jwk(jwk)? else {
        let kind = ["kty", "crv"].map(|name| jwk.get(name).and_then(Value::as_str).unwrap_or_default());
        return Ok(Admitted::LeftOut(format!("is of the kind {:?}", kind.join(" ").trim_end())));
    };
    let possible = match optional_str(jwk, "alg")? {
        None => material.algorithms().to_vec(),
        Some(name) => match algorithm_named(name) {
            Some(said) if material.algorithms().contains(&said) => vec![said],
            Some(_) => return Err(format!("alg {name} does not fit its key")),
            None => return Ok(Admitted::LeftOut(format!("is for {name:?}"))),
        },
    };
    if !possible.iter().any(|algorithm| allowed.contains(algorithm)) {
        return Ok(Admitted::LeftOut(format!("is for {}", names(&possible))));
    }
    let algorithm = one_algorithm(&possible, allowed)?;
    let kid = optional_str(jwk, "kid")?.map(str::to_owned);
    material.admit(kid, algorithm).map(Admitted::Key)
}

/// `use` and `key_ops` are looked at before the rest: an encryption key may be of a kind that cannot be read here.
fn other_purpose(jwk: &Map<String, Value>) -> Result<Option<String>, String> {
    match optional_str(jwk, "use")? {
        None | Some("sig") => {}
        Some("enc") => return Ok(Some("is for encryption".into())),
        Some(other) => return Ok(Some(format!("is for {other:?}"))),
    }
    match jwk.get("key_ops") {
        None => Ok(None),
        Some(Value::Array(operations)) if operations.iter().any(|operation| operation == "verify") => Ok(None),
        Some(Value::Array(_)) => Ok(Some("is not for verifying".into())),
        Some(_) => Err("key_ops is not an array".into()),
    }
}

/// The algorithm of a key that does not name one is the only one that configuration leaves; the token never chooses.
pub(super) fn one_algorithm(possible: &[Algorithm], allowed: &[Algorithm]) -> Result<Algorithm, String> {
    let mut fitting = allowed.iter().filter(|algorithm| possible.contains(algorithm));
    match (fitting.next(), fitting.next()) {
        (Some(algorithm), None) => Ok(*algorithm),
        (None, _) => Err("none of the issuer's algorithms fits this key".into()),
        (Some(a), Some(b)) => Err(format!(
            "the key names no alg, and both {} and {} are possible; give it an alg or allow one of them only",
            algorithm_name(*a),
            algorithm_name(*b)
        )),
    }
}

/// What a key is made of.
pub(super) enum Material {
    /// Both without leading zeros: aws-lc takes no others, and some issuers write them.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point: 04 and two coordinates.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Secret),
}

impl Material {
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Self {
        Material::Rsa {
            modulus: without_leading_zeros(modulus).to_vec(),
            exponent: without_leading_zeros(exponent).to_vec(),
        }
    }

    /// `None` for P-521, Ed448, and whatever comes: no harm in a set.
    fn of_jwk(jwk: &Map<String, Value>) -> Result<Option<Self>, String> {
        let kty = optional_str(jwk, "kty")?.ok_or("kty is missing")?;
        let curve = optional_str(jwk, "crv")?;
        // `d` of a public kind is the private half. Whoever can read this set can sign with it.
        if kty != "oct" && jwk.contains_key("d") {
            return Err("this is a private key, which everybody who reads the set can sign with".into());
        }
        Ok(Some(match (kty, curve) {
            ("RSA", _) => Material::rsa(&bytes(jwk, "n")?, &bytes(jwk, "e")?),
            ("EC", Some("P-256")) => Material::P256(point(jwk, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(jwk, 48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(jwk, "x")?),
            ("oct", _) => Material::Secret(Secret::new(bytes(jwk, "k")?)),
            _ => return Ok(None),
        }))
    }

    pub(super) fn algorithms(&self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Material::Rsa { .. } => &[RS256, RS384, RS512, PS256, PS384, PS512],
            Material::P256(_) => &[ES256],
            Material::P384(_) => &[ES384],
            Material::Ed25519(_) => &[EdDSA],
            Material::Secret(_) => &[HS256, HS384, HS512],
        }
    }

    /// A key for this algorithm, which is one of [`Material::algorithms`], if it is strong and whole.
    pub(super) fn admit(self, kid: Option<String>, algorithm: Algorithm) -> Result<Key, String> {
        let parse = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8], fault: &str| {
            ParsedPublicKey::new(algorithm, key).map(drop).map_err(|_| fault.to_owned())
        };
        match self {
            Material::Rsa { modulus, exponent } => {
                admit_modulus(&modulus)?;
                admit_exponent(&exponent)?;
                let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
                Ok(Key::new(kid, algorithm, key, &[&modulus, &exponent]))
            }
            Material::P256(point) => {
                parse(&ECDSA_P256_SHA256_FIXED, &point, "this is no point of the curve P-256")?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ec_der(&point), &[&point]))
            }
            Material::P384(point) => {
                parse(&ECDSA_P384_SHA384_FIXED, &point, "this is no point of the curve P-384")?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ec_der(&point), &[&point]))
            }
            Material::Ed25519(key) => {
                parse(&ED25519, &key, "this is no key of Ed25519, which has 32 bytes")?;
                Ok(Key::new(kid, algorithm, DecodingKey::from_ed_der(&key), &[&key]))
            }
            Material::Secret(secret) => {
                admit_secret_len(secret.expose().len(), algorithm)?;
                let key = DecodingKey::from_secret(secret.expose());
                Ok(Key::new(kid, algorithm, key, &[secret.expose()]))
            }
        }
    }
}

fn admit_modulus(modulus: &[u8]) -> Result<(), String> {
    let bits = bits(modulus);
    if bits < RSA_MIN_BITS {
        return Err(format!("an RSA key of {bits} bits is too weak; at least {RSA_MIN_BITS} are needed"));
    }
    if bits > RSA_MAX_BITS {
        return Err(format!("an RSA key of {bits} bits is too slow; at most {RSA_MAX_BITS} are taken"));
    }
    match is_odd(modulus) {
        true => Ok(()),
        false => Err("the RSA modulus is even, so anybody can factor it".into()),
    }
}

/// With the exponent 1 every message is its own signature; an even one is no RSA key at all.
fn admit_exponent(exponent: &[u8]) -> Result<(), String> {
    match bits(exponent) {
        2..=RSA_MAX_EXPONENT_BITS if is_odd(exponent) => Ok(()),
        0 | 1 => Err("the RSA exponent is below 3, so anybody can sign".into()),
        bits if bits > RSA_MAX_EXPONENT_BITS => Err(format!(
            "an RSA exponent of {bits} bits is too slow; at most {RSA_MAX_EXPONENT_BITS} are taken, and 65537 is usual"
        )),
        _ => Err("the RSA exponent is even".into()),
    }
}

/// RFC 7518 section 3.2: a secret at least as long as the hash.
fn admit_secret_len(len: usize, algorithm: Algorithm) -> Result<(), String> {
    let least = match algorithm {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    };
    if len < least {
        let name = algorithm_name(algorithm);
        return Err(format!("a secret of {len} bytes is too short for {name}; at least {least} are needed"));
    }
    Ok(())
}

fn bytes(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let text = optional_str(jwk, name)?.ok_or_else(|| format!("{name} is missing"))?;
    decode_segment(text).ok_or_else(|| format!("{name} is not base64url without padding"))
}

fn point(jwk: &Map<String, Value>, size: usize) -> Result<Vec<u8>, String> {
    let mut point = vec![4];
    for name in ["x", "y"] {
        let coordinate = bytes(jwk, name)?;
        if coordinate.len() != size {
            return Err(format!("{name} has {} bytes instead of {size}", coordinate.len()));
        }
        point.extend(coordinate);
    }
    Ok(point)
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

pub(super) fn names(algorithms: &[Algorithm]) -> String {
    algorithms.iter().map(|algorithm| algorithm_name(*algorithm)).collect::<Vec<_>>().join(", ")
}

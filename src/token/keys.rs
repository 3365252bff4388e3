//! Keys, admitted and not just loaded: what a key may do is decided here, once, and never by a token.
//!
//! Each key has exactly one algorithm. Refused outright: RSA below 2,048 bits, HMAC secrets shorter than the hash, two keys
//! of one `kid`, keys for encryption, public keys mixed with secrets, curves we do not know.

use std::collections::HashSet;
use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::{algorithm_name, algorithm_named};

const RSA_MIN_BITS: usize = 2048;
/// RSA keys above this make a verification cost more than a denial of service needs.
const RSA_MAX_BITS: usize = 8192;

/// One key that verifies.
pub struct Key {
    pub kid: Option<String>,
    pub algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// No key material, though public keys would do no harm: an HMAC secret is a key too.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {})", self.kid, algorithm_name(self.algorithm))
    }
}

/// The keys of one issuer.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
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

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// From a JSON Web Key Set (RFC 7517). `allowed` are the issuer's algorithms; keys that none of them can use are left
    /// out, keys that are dangerous are an error. At least one key must remain.
    pub fn from_jwks(text: &str, allowed: &[Algorithm]) -> Result<Self, String> {
        let set: Value = serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}"))?;
        let entries = set.get("keys").and_then(Value::as_array).ok_or("a JWKS is an object with the array \"keys\"")?;
        let mut keys = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let key = admit_jwk(entry, allowed).map_err(|fault| format!("key {place}: {fault}"))?;
            keys.extend(key);
        }
        Self::from_keys(keys)
    }

    /// From one PEM public key (`PUBLIC KEY`, `RSA PUBLIC KEY`) or certificate.
    pub fn from_pem(pem: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        let (decoding, algorithms) = read_pem(pem)?;
        let algorithm = one_algorithm(&algorithms, allowed)?;
        if is_rsa(algorithm) {
            let der = decoding.try_get_as_bytes().map_err(|error| error.to_string())?;
            admit_rsa_bits(rsa_der_bits(der).ok_or("the RSA key cannot be read")?)?;
        }
        Self::from_keys(vec![Key { kid: None, algorithm, decoding }])
    }

    /// From a shared secret. Anybody who can check such a token can also forge it.
    pub fn from_secret(secret: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        let algorithm = one_algorithm(&[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512], allowed)?;
        admit_secret_len(secret.len(), algorithm)?;
        Self::from_keys(vec![Key { kid: None, algorithm, decoding: DecodingKey::from_secret(secret) }])
    }

    pub(super) fn from_keys(keys: Vec<Key>) -> Result<Self, String> {
        let mut kids = HashSet::new();
        for key in &keys {
            if let Some(kid) = &key.kid
                && !kids.insert(kid)
            {
                return Err(format!("two keys have the kid {kid:?}"));
            }
        }
        if keys.is_empty() {
            return Err("there is no key that the issuer's algorithms can use".into());
        }
        if keys.len() > 1 && keys.iter().any(|key| key.kid.is_none()) {
            return Err("with several keys, each needs a kid".into());
        }
        if keys.iter().any(|key| is_hmac(key.algorithm)) && !keys.iter().all(|key| is_hmac(key.algorithm)) {
            return Err("shared secrets (kty oct) and public keys are mixed".into());
        }
        Ok(KeySet { keys })
    }
}

/// `None` for a key that is meant for something else; an error for one that is dangerous.
fn admit_jwk(entry: &Value, allowed: &[Algorithm]) -> Result<Option<Key>, String> {
    // `use` and `key_ops` are checked before the rest is read: an encryption key may be of a kind we do not know.
    if entry.get("use").is_some_and(|usage| usage != "sig") {
        return Ok(None);
    }
    let operations = entry.get("key_ops").and_then(Value::as_array);
    if operations.is_some_and(|ops| !ops.iter().any(|op| op == "verify")) {
        return Ok(None);
    }
    let jwk: Jwk = serde_json::from_value(entry.clone()).map_err(|error| format!("not a JSON Web Key: {error}"))?;
    let possible = possible_algorithms(&jwk);
    let said = match entry.get("alg") {
        None => possible,
        Some(name) => {
            let name = name.as_str().ok_or("alg is not a string")?;
            let Some(said) = algorithm_named(name) else { return Ok(None) };
            if !possible.is_empty() && !possible.contains(&said) {
                return Err(format!("alg {name} does not fit its key"));
            }
            vec![said]
        }
    };
    if !said.iter().any(|algorithm| allowed.contains(algorithm)) {
        return Ok(None);
    }
    let algorithm = one_algorithm(&said, allowed)?;
    admit_jwk_strength(&jwk, algorithm)?;
    let decoding = DecodingKey::from_jwk(&jwk).map_err(|error| format!("the key cannot be used: {error}"))?;
    Ok(Some(Key { kid: jwk.common.key_id, algorithm, decoding }))
}

fn possible_algorithms(jwk: &Jwk) -> Vec<Algorithm> {
    use Algorithm::*;
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::OctetKey(_) => vec![HS256, HS384, HS512],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => vec![ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => vec![ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => vec![EdDSA],
        // P-521, Ed448 and whatever comes: not ours to use, and no harm in a set.
        _ => vec![],
    }
}

/// The algorithm of a key that does not name one is the only one that configuration leaves; the token never chooses.
fn one_algorithm(possible: &[Algorithm], allowed: &[Algorithm]) -> Result<Algorithm, String> {
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

fn admit_jwk_strength(jwk: &Jwk, algorithm: Algorithm) -> Result<(), String> {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let modulus = super::decode_segment(&key.n).ok_or("n is not base64url")?;
            admit_rsa_bits(bits(&modulus))
        }
        AlgorithmParameters::OctetKey(key) => {
            let secret = super::decode_segment(&key.value).ok_or("k is not base64url")?;
            admit_secret_len(secret.len(), algorithm)
        }
        _ => Ok(()),
    }
}

fn admit_rsa_bits(bits: usize) -> Result<(), String> {
    if bits < RSA_MIN_BITS {
        return Err(format!("an RSA key of {bits} bits is too weak; at least {RSA_MIN_BITS} are needed"));
    }
    if bits > RSA_MAX_BITS {
        return Err(format!("an RSA key of {bits} bits is too slow; at most {RSA_MAX_BITS} are taken"));
    }
    Ok(())
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

fn read_pem(pem: &[u8]) -> Result<(DecodingKey, Vec<Algorithm>), String> {
    use Algorithm::*;
    if pem.windows(12).any(|window| window == b"PRIVATE KEY-") {
        return Err("this is a private key, which has no business here; expected its public key".into());
    }
    if let Ok(key) = DecodingKey::from_ed_pem(pem) {
        return Ok((key, vec![EdDSA]));
    }
    if let Ok(key) = DecodingKey::from_ec_pem(pem) {
        // An uncompressed point: 04 and two coordinates.
        let curve = match key.try_get_as_bytes().map(<[u8]>::len) {
            Ok(65) => vec![ES256],
            Ok(97) => vec![ES384],
            _ => return Err("the curve is neither P-256 nor P-384".into()),
        };
        return Ok((key, curve));
    }
    match DecodingKey::from_rsa_pem(pem) {
        Ok(key) => Ok((key, vec![RS256, RS384, RS512, PS256, PS384, PS512])),
        Err(_) => Err("this is not a PEM public key (BEGIN PUBLIC KEY)".into()),
    }
}

/// Bits of the modulus of a PKCS#1 `RSAPublicKey`: the first INTEGER of the SEQUENCE.
fn rsa_der_bits(der: &[u8]) -> Option<usize> {
    let sequence = der_element(der, 0x30)?;
    Some(bits(der_element(sequence, 0x02)?))
}

/// The content of the DER element that `der` begins with, if it has this tag.
fn der_element(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (&[found, len], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    if len < 0x80 {
        return rest.get(..usize::from(len));
    }
    let (len_bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
    let len = len_bytes.iter().try_fold(0usize, |len, byte| len.checked_mul(256)?.checked_add(usize::from(*byte)))?;
    rest.get(..len)
}

fn bits(number: &[u8]) -> usize {
    let significant = number.iter().position(|byte| *byte != 0).map_or(&[][..], |first| &number[first..]);
    significant.first().map_or(0, |top| significant.len() * 8 - top.leading_zeros() as usize)
}

fn is_rsa(algorithm: Algorithm) -> bool {
    use Algorithm::*;
    matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512)
}

/// HMAC: whoever verifies can sign.
pub fn is_hmac(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

//! The public key in the header of a DPoP proof (RFC 9449 section 4.2). Any client can send one, so nothing about it is
//! trusted before its thumbprint equals that in a token.

use serde_json::{Map, Value};

use super::algorithm::{Algorithm, algorithm_named, is_hmac};
use super::json::{optional_str, quoted};
use super::jwk::{self, ParsedJwk};
use super::key::Key;
use crate::types::thumbprint::Thumbprint;

/// The members of a private key, or of a shared one. Typed readers drop them without a word.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// 4,096 bits. A check with a larger key takes long, and any client can make one.
const MAX_RSA_BYTES: usize = 512;

/// A key for one algorithm, which a client has shown. It may be of any client.
pub struct ProofKey {
    key: Key,
    pub thumbprint: Thumbprint,
}

impl ProofKey {
    /// Reads `jwk` and `alg` of a header. The error says what is wrong, for the log.
    pub(crate) fn read(header: &Map<String, Value>) -> Result<Self, String> {
        let algorithm = algorithm(header)?;
        let jwk = header.get("jwk").ok_or("jwk is missing")?;
        let members = jwk.as_object().ok_or("jwk is not an object")?;
        if let Some(name) = PRIVATE.iter().find(|name| members.contains_key(**name)) {
            return Err(format!("jwk has {name}, which is private"));
        }
        // Base64url of 512 bytes has 683 characters. One more byte could only be a leading zero.
        let modulus = optional_str(members, "n").map_err(|error| error.to_string())?.unwrap_or_default();
        if modulus.len() > (MAX_RSA_BYTES * 4).div_ceil(3) {
            return Err("jwk is an RSA key of more than 4096 bits".into());
        }
        let key = match jwk::parse(jwk, &[algorithm]) {
            Ok(ParsedJwk::Key(key)) => key,
            Ok(ParsedJwk::Skipped(why)) => return Err(format!("jwk {why}")),
            Err(error) => return Err(format!("jwk: {error}")),
        };
        let thumbprint = thumbprint(members).ok_or("jwk has no thumbprint")?;
        Ok(ProofKey { key, thumbprint })
    }

    /// Returns true if this key has signed the message. `signature`: in base64url.
    pub(crate) fn has_signed(&self, message: &str, signature: &str) -> bool {
        let Key { decoding, algorithm, .. } = &self.key;
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), decoding, *algorithm).unwrap_or(false)
    }
}

/// Of a key with these members. Their values are valid base64url or names. RFC 7638 section 3.2, in the order of
/// section 3.3.
fn thumbprint(jwk: &Map<String, Value>) -> Option<Thumbprint> {
    let text = |name| jwk.get(name).and_then(Value::as_str);
    let canonical = match text("kty")? {
        "EC" => format!(r#"{{"crv":"{}","kty":"EC","x":"{}","y":"{}"}}"#, text("crv")?, text("x")?, text("y")?),
        "OKP" => format!(r#"{{"crv":"{}","kty":"OKP","x":"{}"}}"#, text("crv")?, text("x")?),
        "RSA" => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text("e")?, text("n")?),
        _ => return None,
    };
    Some(Thumbprint::of(&canonical))
}

/// Asymmetric algorithms only: with a shared secret, the gateway could make proofs, too (RFC 9449 section 4.3).
fn algorithm(header: &Map<String, Value>) -> Result<Algorithm, String> {
    let name = optional_str(header, "alg").map_err(|error| error.to_string())?;
    // RFC 9864 section 2.2: Ed25519 is EdDSA with this curve, the only one here.
    let name = name.map(|name| if name == "Ed25519" { "EdDSA" } else { name });
    let named = name.and_then(algorithm_named).filter(|algorithm| !is_hmac(*algorithm));
    named.ok_or_else(|| format!("alg is {}", quoted(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key and the thumbprint of RFC 7638 section 3.1.
    #[test]
    fn the_thumbprint_of_the_rfc() {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZ\
                 CiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJ\
                 ZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBni\
                 Iqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let jwk = json!({ "kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29" });
        let key = ProofKey::read(json!({ "alg": "RS256", "jwk": jwk }).as_object().expect("an object"));
        let expected = Thumbprint::parse("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs").expect("a thumbprint");
        assert_eq!(key.map(|key| key.thumbprint), Ok(expected));
    }
}

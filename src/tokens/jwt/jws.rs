//! The envelope of a token: a compact JWS (RFC 7515), with any payload. The caller decides which keys may have signed
//! it.

use serde_json::{Map, Value};

use super::algorithm::{Algorithm, algorithm_name, algorithm_named};
use super::base64url::decode_segment;
use super::json::{self, optional_str, quoted};
use super::key::{Key, Signer};
use super::key_set::KeySet;
use crate::types::reject::{Reason, Reject};
use crate::types::step::{Step, StepReporter};

/// Header parameters that change the meaning of a token or the source of its key. No access token needs them, and each
/// was used in an attack: a key from the token (`jwk`, `jku`, `x5u`), another payload encoding (`b64`, `zip`),
/// extensions that must be understood (`crit`).
const FORBIDDEN: &[&str] = &["crit", "b64", "zip", "jku", "jwk", "x5u"];

/// Header parameters that the gateway ignores. They must be strings all the same, because the backend may read them.
const IGNORED_STRINGS: &[&str] = &["cty", "x5t", "x5t#S256"];

/// Verifies only the signature, with the key of `keys` that the header names, and returns the payload.
pub fn verify_signature(token: &str, keys: &KeySet, steps: StepReporter<'_>) -> Result<Vec<u8>, Reject> {
    let jws = Jws::parse(token)?;
    let algorithm = jws.algorithm(|_| true)?;
    steps.report(Step::Header, || jws.describe_header(algorithm));
    let payload =
        decode_segment(jws.payload).ok_or_else(|| malformed("the payload", "not base64url without padding"))?;
    jws.verify(keys, algorithm, steps)?;
    Ok(payload)
}

pub(super) struct Jws<'t> {
    pub(super) header: Map<String, Value>,
    payload: &'t str,
    signature: &'t str,
    /// The signed bytes: header, dot, payload.
    message: &'t str,
}

impl<'t> Jws<'t> {
    /// Splits the three segments and reads the header. This is cheap, and rejects a token with a forbidden header
    /// before anything else is read.
    pub(super) fn parse(token: &'t str) -> Result<Self, Reject> {
        let not_three = || Reject::new(Reason::MalformedToken, "not three segments separated by dots");
        let (message, signature) = token.rsplit_once('.').ok_or_else(not_three)?;
        let (header, payload) = message.split_once('.').ok_or_else(not_three)?;
        if payload.contains('.') || header.is_empty() {
            return Err(not_three());
        }
        if signature.is_empty() {
            return Err(Reject::new(Reason::BadSignature, "the signature is missing"));
        }
        let header = object(header, "the header")?;
        if let Some(name) = FORBIDDEN.iter().find(|name| header.contains_key(**name)) {
            return Err(Reject::new(Reason::ForbiddenHeader, format!("the header has {name}")));
        }
        if let Some(name) =
            IGNORED_STRINGS.iter().find(|name| header.get(**name).is_some_and(|value| !value.is_string()))
        {
            return Err(malformed("the header", &format!("{name} is not a string")));
        }
        Ok(Jws { header, payload, signature, message })
    }

    /// The payload as a set of claims (RFC 7519).
    pub(super) fn claims(&self) -> Result<Map<String, Value>, Reject> {
        object(self.payload, "the claims")
    }

    /// The algorithm of the header, if it is supported and allowed.
    pub(super) fn algorithm(&self, is_allowed: impl Fn(Algorithm) -> bool) -> Result<Algorithm, Reject> {
        let Some(Value::String(name)) = self.header.get("alg") else {
            return Err(Reject::new(Reason::AlgorithmNotAllowed, "alg is missing or not a string"));
        };
        algorithm_named(name)
            .filter(|algorithm| is_allowed(*algorithm))
            .ok_or_else(|| Reject::new(Reason::AlgorithmNotAllowed, format!("alg is {}", quoted(Some(name)))))
    }

    pub(super) fn kid(&self) -> Result<Option<&str>, Reject> {
        optional_str(&self.header, "kid").map_err(|error| Reject::new(Reason::MalformedToken, error.to_string()))
    }

    /// Finds the key and verifies the signature, the most expensive check.
    pub(super) fn verify(
        &self,
        keys: &KeySet,
        algorithm: Algorithm,
        steps: StepReporter<'_>,
    ) -> Result<Signer, Reject> {
        let kid = self.kid()?;
        let key = find_key(keys, kid, algorithm)?;
        steps.report(Step::Key, || format!("{} {}", algorithm_name(key.algorithm), quoted(key.kid.as_deref())));
        match jsonwebtoken::crypto::verify(self.signature, self.message.as_bytes(), &key.decoding, key.algorithm) {
            Ok(true) => {
                steps.report(Step::Signature, || "valid".into());
                Ok(key.signer(kid.is_some()))
            }
            Ok(false) => Err(Reason::BadSignature.into()),
            Err(error) => Err(Reject::new(Reason::BadSignature, format!("cannot read the signature: {error}"))),
        }
    }

    pub(super) fn describe_header(&self, algorithm: Algorithm) -> String {
        let text = |name| quoted(self.header.get(name).and_then(Value::as_str));
        format!("alg {}, typ {}, kid {}", algorithm_name(algorithm), text("typ"), text("kid"))
    }
}

fn find_key<'k>(keys: &'k KeySet, kid: Option<&str>, algorithm: Algorithm) -> Result<&'k Key, Reject> {
    if keys.is_empty() {
        return Err(Reject::new(
            Reason::KeysUnavailable,
            "the keys of this issuer were not fetched yet, or are too old",
        ));
    }
    keys.find(kid, algorithm).ok_or_else(|| match kid {
        Some(kid) if keys.is_revoked(kid) => {
            Reject::new(Reason::KeyRevoked, format!("the key {} was revoked", quoted(Some(kid))))
        }
        _ => {
            let name = algorithm_name(algorithm);
            Reject::new(Reason::UnknownKey, format!("this issuer has no {name} key {}", quoted(kid)))
        }
    })
}

fn object(segment: &str, what: &str) -> Result<Map<String, Value>, Reject> {
    let bytes = decode_segment(segment).ok_or_else(|| malformed(what, "not base64url without padding"))?;
    json::object(&bytes).map_err(|error| malformed(what, &error.to_string()))
}

fn malformed(what: &str, error: &str) -> Reject {
    Reject::new(Reason::MalformedToken, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_described_by_what_decides_about_the_key() {
        // {"alg":"ES256","kid":"k"}
        let Ok(jws) = Jws::parse("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.e30.AA") else { panic!("a token") };
        assert_eq!(jws.describe_header(Algorithm::ES256), "alg ES256, typ (none), kid \"k\"");
    }
}

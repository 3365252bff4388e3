//! The envelope of a token: a compact JWS (RFC 7515), whatever is in it. What it says is not believed before its signature
//! holds, and who may have signed it is for others to say.

use serde_json::{Map, Value};

use super::key_set::{Key, KeySet, Signer};
use super::{Algorithm, algorithm_name, algorithm_named, decode_segment, json};
use crate::types::reject::{Reason, Reject};
use crate::types::trace::{Step, Trace};

/// Header parameters that change what a token means or where its key comes from. None of them is needed, and each has
/// been an attack: a key out of the token (`jwk`, `jku`, `x5u`), another payload encoding (`b64`, `zip`), extensions that
/// must be understood (`crit`).
const FORBIDDEN: &[&str] = &["crit", "b64", "zip", "jku", "jwk", "x5u"];

/// Members that nothing here reads. They are text all the same: what another reader stumbles over is no good header.
const TEXT: &[&str] = &["cty", "x5t", "x5t#S256"];

/// Checks the signature alone, by the key among `keys` that the header means, and answers the payload.
pub fn verify_signature(token: &str, keys: &KeySet, trace: Trace<'_>) -> Result<Vec<u8>, Reject> {
    let jws = Jws::read(token)?;
    let algorithm = jws.algorithm(|_| true)?;
    trace.step(Step::Header, || jws.header_in_words(algorithm));
    let payload =
        decode_segment(jws.payload).ok_or_else(|| malformed("the payload", "not base64url without padding"))?;
    jws.check(keys, algorithm, trace)?;
    Ok(payload)
}

pub(super) struct Jws<'t> {
    pub(super) header: Map<String, Value>,
    payload: &'t str,
    signature: &'t str,
    /// What is signed: header, dot, payload.
    message: &'t str,
}

impl<'t> Jws<'t> {
    /// Takes the three segments apart and reads the header. Cheap, and nothing more is looked at in a token that asks for
    /// what no token needs.
    pub(super) fn read(token: &'t str) -> Result<Self, Reject> {
        let three = || Reject::new(Reason::MalformedToken, "not three segments with dots between them");
        let (message, signature) = token.rsplit_once('.').ok_or_else(three)?;
        let (header, payload) = message.split_once('.').ok_or_else(three)?;
        if payload.contains('.') || header.is_empty() {
            return Err(three());
        }
        if signature.is_empty() {
            return Err(Reject::new(Reason::BadSignature, "there is no signature"));
        }
        let header = object(header, "the header")?;
        if let Some(name) = FORBIDDEN.iter().find(|name| header.contains_key(**name)) {
            return Err(Reject::new(Reason::ForbiddenHeader, format!("the header has {name}")));
        }
        if let Some(name) = TEXT.iter().find(|name| header.get(**name).is_some_and(|value| !value.is_string())) {
            return Err(malformed("the header", &format!("{name} is not a string")));
        }
        Ok(Jws { header, payload, signature, message })
    }

    /// The payload, if it is a set of claims (RFC 7519).
    pub(super) fn claims(&self) -> Result<Map<String, Value>, Reject> {
        object(self.payload, "the claims")
    }

    /// The algorithm that the header names, if it is one of ours and allowed.
    pub(super) fn algorithm(&self, is_allowed: impl Fn(Algorithm) -> bool) -> Result<Algorithm, Reject> {
        let Some(Value::String(name)) = self.header.get("alg") else {
            return Err(Reject::new(Reason::AlgorithmNotAllowed, "alg is missing or not a string"));
        };
        algorithm_named(name)
            .filter(|algorithm| is_allowed(*algorithm))
            .ok_or_else(|| Reject::new(Reason::AlgorithmNotAllowed, format!("alg is {}", show(Some(name)))))
    }

    pub(super) fn kid(&self) -> Result<Option<&str>, Reject> {
        optional_str(&self.header, "kid").map_err(|fault| Reject::new(Reason::MalformedToken, fault))
    }

    /// Looks the key up and checks the signature: what costs fifty times all the rest.
    pub(super) fn check(&self, keys: &KeySet, algorithm: Algorithm, trace: Trace<'_>) -> Result<Signer, Reject> {
        let kid = self.kid()?;
        let key = find_key(keys, kid, algorithm)?;
        trace.step(Step::Key, || format!("{} {}", algorithm_name(key.algorithm), show(key.kid.as_deref())));
        match jsonwebtoken::crypto::verify(self.signature, self.message.as_bytes(), &key.decoding, key.algorithm) {
            Ok(true) => {
                trace.step(Step::Signature, || "holds".into());
                Ok(key.signer(kid.is_some()))
            }
            Ok(false) => Err(Reason::BadSignature.into()),
            Err(error) => Err(Reject::new(Reason::BadSignature, format!("the signature cannot be read: {error}"))),
        }
    }

    pub(super) fn header_in_words(&self, algorithm: Algorithm) -> String {
        let text = |name| show(self.header.get(name).and_then(Value::as_str));
        format!("alg {}, typ {}, kid {}", algorithm_name(algorithm), text("typ"), text("kid"))
    }
}

fn find_key<'k>(keys: &'k KeySet, kid: Option<&str>, algorithm: Algorithm) -> Result<&'k Key, Reject> {
    if keys.is_empty() {
        return Err(Reject::new(Reason::KeysUnavailable, "this issuer's keys are not there yet, or too old"));
    }
    keys.find(kid, algorithm).ok_or_else(|| match kid {
        Some(kid) if keys.is_revoked(kid) => {
            Reject::new(Reason::KeyRevoked, format!("the key {} was revoked", show(Some(kid))))
        }
        _ => {
            let name = algorithm_name(algorithm);
            Reject::new(Reason::UnknownKey, format!("no {name} key {} of this issuer", show(kid)))
        }
    })
}

fn object(segment: &str, what: &str) -> Result<Map<String, Value>, Reject> {
    let bytes = decode_segment(segment).ok_or_else(|| malformed(what, "not base64url without padding"))?;
    json::object(&bytes).map_err(|error| malformed(what, &error.to_string()))
}

fn malformed(what: &str, fault: &str) -> Reject {
    Reject::new(Reason::MalformedToken, format!("{what}: {fault}"))
}

pub(super) fn optional_str<'m>(map: &'m Map<String, Value>, name: &str) -> Result<Option<&'m str>, String> {
    match map.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is not a string")),
    }
}

/// Something a client chose, for the log: quoted, escaped, and not long.
pub(super) fn show(text: Option<&str>) -> String {
    match text {
        None => "(none)".into(),
        Some(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
    }
}

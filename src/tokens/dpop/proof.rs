//! One proof: its form, its key, and what it must say about the request (RFC 9449 sections 4.2 and 4.3).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::htu::TargetUri;
use super::window;
use crate::tokens::jwt::{ProofKey, decode_segment, json};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;
use crate::types::thumbprint::Thumbprint;

/// The algorithms that a proof can have, as `WWW-Authenticate` and the metadata list them.
pub const PROOF_ALGORITHMS: &str = "ES256 ES384 EdDSA Ed25519 RS256 RS384 RS512 PS256 PS384 PS512";

/// Maximum length of a proof in bytes. One with an RSA key of 4,096 bits has 1,800.
const MAX_SIZE: usize = 4 << 10;

/// Maximum length of `jti` in bytes (RFC 9449 section 11.1: servers may reject long ones).
const MAX_JTI: usize = 256;

/// The only `typ` (RFC 9449 section 4.2). Exactly: another spelling is another kind of JWT for other readers.
const TYPE: &str = "dpop+jwt";

/// Header parameters that change what is signed.
const FORBIDDEN: [&str; 3] = ["crit", "b64", "zip"];

/// Maximum length of a header that is remembered, in bytes. One with an RSA key of 4,096 bits has 970.
const MAX_KNOWN_HEADER: usize = 1 << 10;

/// The header of a proof with a good signature. A client sends the same one in each of its proofs, and to read its key
/// costs three times as much as all other checks but the signature.
pub struct KnownHeader {
    /// As sent, in base64url.
    segment: Box<str>,
    key: Arc<ProofKey>,
}

impl KnownHeader {
    /// At most, in bytes, with the key.
    pub const MAX_MEMORY: usize = 2 * MAX_KNOWN_HEADER;

    /// Of a proof with a good signature. `None` if it is too long.
    pub fn of(proof: &DpopProof<'_>) -> Option<Self> {
        let segment = Some(proof.header).filter(|header| header.len() <= MAX_KNOWN_HEADER)?;
        Some(KnownHeader { segment: segment.into(), key: proof.key.clone() })
    }
}

/// A proof as the client sent it. Nothing in it is trusted.
pub struct DpopProof<'t> {
    /// The first segment.
    header: &'t str,
    key: Arc<ProofKey>,
    claims: Map<String, Value>,
    /// Header, dot, payload.
    message: &'t str,
    signature: &'t str,
}

/// Returns when a nonce was made, in seconds, and whether the client should use a newer one. `None` for an unknown one.
pub type NonceCheck<'r> = &'r (dyn Fn(&str) -> Option<(u64, bool)> + Sync);

/// What the gateway knows about the request.
pub struct Expected<'r> {
    pub target: TargetUri<'r>,
    pub method: &'r str,
    /// A second method that the proof may name. For the extended CONNECT of a WebSocket, libraries sign either.
    pub other_method: Option<&'r str>,
    /// See [`access_token_hash`]. `None` without a token.
    pub ath: Option<&'r str>,
    /// The key that the token, or the grant, is bound to. `None` if any key is good.
    pub key: Option<Thumbprint>,
    /// Looks a nonce up. `None`: proofs need none.
    pub nonce: Option<NonceCheck<'r>>,
    pub now: UnixTime,
}

/// A proof of this request, by the right key. It is good once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedProof {
    pub key: Thumbprint,
    /// Names the proof among all of its time: a hash of `jti` and the key, so that no client can use up the `jti` of
    /// another one.
    pub id: u128,
    /// `iat`, or when the nonce was made, in whole seconds.
    pub issued: u64,
    /// The client should use a newer nonce.
    pub has_old_nonce: bool,
}

/// A proof that says the right things. It is not known who says them.
pub struct CheckedProof<'p> {
    proof: &'p DpopProof<'p>,
    verified: VerifiedProof,
}

impl CheckedProof<'_> {
    /// Verifies the signature, the most expensive check.
    pub fn verify(self) -> Result<VerifiedProof, Reject> {
        if self.proof.key.has_signed(self.proof.message, self.proof.signature) {
            Ok(self.verified)
        } else {
            Err(Reason::ProofSignature.into())
        }
    }
}

/// What `ath` must be for this access token (RFC 9449 section 4.2).
pub fn access_token_hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(secret::digest(&[token.as_bytes()]))
}

impl<'t> DpopProof<'t> {
    /// Reads the value of the one `DPoP` field. `known`: a header that needs no second look.
    pub fn read(field: &'t [u8], known: Option<&KnownHeader>) -> Result<Self, Reject> {
        if field.len() > MAX_SIZE {
            return Err(malformed(format!("{} bytes, at most {MAX_SIZE}", field.len())));
        }
        let text = std::str::from_utf8(field).map_err(|_| malformed("not ASCII"))?;
        if text.contains(',') {
            return Err(malformed("a comma: several proofs in one field"));
        }
        let not_three = || malformed("not three segments separated by dots");
        let (message, signature) = text.rsplit_once('.').ok_or_else(not_three)?;
        let (header, payload) = message.split_once('.').ok_or_else(not_three)?;
        if payload.contains('.') {
            return Err(not_three());
        }
        let key = match known.filter(|known| *known.segment == *header) {
            Some(known) => known.key.clone(),
            None => Arc::new(key_of(header)?),
        };
        let claims = object(payload, "the payload")?;
        Ok(DpopProof { header, key, claims, message, signature })
    }

    /// Checks the proof against the request, except for its signature. The order is that of the costs.
    pub fn check(&self, expected: &Expected<'_>) -> Result<CheckedProof<'_>, Reject> {
        let key = self.key.thumbprint;
        if expected.key.is_some_and(|bound| bound != key) {
            return Err(Reject::new(Reason::ProofKey, "the thumbprint of jwk is not that of the token"));
        }
        self.check_request(expected)?;
        let (issued, has_old_nonce) = match expected.nonce {
            None => (window::check(&self.claims, expected.now)?, false),
            // The nonce is the time: a wrong clock of the client does no harm.
            Some(known) => {
                window::check_end(&self.claims, expected.now)?;
                self.nonce(known)?
            }
        };
        let jti = self.text("jti")?;
        if !(1..=MAX_JTI).contains(&jti.len()) {
            return Err(malformed(format!("jti must have 1 to {MAX_JTI} bytes")));
        }
        let hash = secret::digest(&[key.as_bytes(), jti.as_bytes()]);
        let id = hash.first_chunk().copied().map_or(0, u128::from_be_bytes);
        Ok(CheckedProof { proof: self, verified: VerifiedProof { key, id, issued, has_old_nonce } })
    }

    fn check_request(&self, expected: &Expected<'_>) -> Result<(), Reject> {
        let other = |detail: &'static str| Err(Reject::new(Reason::ProofRequest, detail));
        let method = self.text("htm")?;
        // RFC 9110 section 9.1: methods are case-sensitive.
        if method != expected.method && expected.other_method != Some(method) {
            return other("htm is another method");
        }
        if let Err(why) = expected.target.check(self.text("htu")?) {
            return other(why);
        }
        match expected.ath {
            Some(ath) if self.text("ath")? != ath => other("ath is not the hash of the token"),
            _ => Ok(()),
        }
    }

    fn nonce(&self, known: NonceCheck<'_>) -> Result<(u64, bool), Reject> {
        let needed = |detail: &'static str| Reject::new(Reason::ProofNonce, detail);
        if !self.claims.contains_key("nonce") {
            return Err(needed("nonce is missing"));
        }
        known(self.text("nonce")?).ok_or_else(|| needed("the nonce is too old, or not of this process"))
    }

    fn text(&self, name: &'static str) -> Result<&str, Reject> {
        match self.claims.get(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(malformed(format!("{name} is not a string"))),
            None => Err(malformed(format!("{name} is missing"))),
        }
    }
}

/// Checks the header, and reads its key.
fn key_of(header: &str) -> Result<ProofKey, Reject> {
    let header = object(header, "the header")?;
    if header.get("typ").and_then(Value::as_str) != Some(TYPE) {
        return Err(malformed("typ is not dpop+jwt"));
    }
    if let Some(name) = FORBIDDEN.iter().find(|name| header.contains_key(**name)) {
        return Err(malformed(format!("the header has {name}")));
    }
    ProofKey::read(&header).map_err(malformed)
}

fn object(segment: &str, what: &str) -> Result<Map<String, Value>, Reject> {
    let bytes = decode_segment(segment).ok_or_else(|| malformed(format!("{what} is not base64url without padding")))?;
    json::object(&bytes).map_err(|error| malformed(format!("{what}: {error}")))
}

fn malformed(detail: impl Into<String>) -> Reject {
    Reject::new(Reason::ProofMalformed, detail.into())
}

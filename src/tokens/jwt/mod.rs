//! Access tokens: from bytes, keys and a time to a [`VerifiedToken`], or to the reason why not. Pure; nothing here waits.
//!
//! The life of a token in one page: `bearer/` finds exactly one; [`verify`] reads header and claims strictly ([`json`]),
//! applies the issuer's policy, and has the signature checked last, by the issuer's own key ([`key_set`]), as that costs
//! fifty times all the rest ([`jws`]). [`sign`] is the other direction, for the tokens this gateway issues, and
//! for those that it puts in the place of others' ([`replacement`]). Which keys are
//! fit at all is decided when they are loaded (`admission`).
//!
//! jsonwebtoken is used for keys and signatures only. Its claim checks are lax by default (no `nbf`, no `typ`, no
//! `crit`, 60 s leeway, absent `iss` and `aud` pass), and it reads the clock by itself.

mod admission;
pub mod json;
pub mod jws;
pub mod key_set;
mod pem;
pub mod pointer;
pub mod replacement;
pub mod sign;
pub mod verify;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use serde_json::{Map, Value};

use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

pub use jsonwebtoken::Algorithm;

/// The algorithms the gateway knows, by their JOSE names.
pub const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];

pub fn algorithm_named(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

pub fn algorithm_name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, known)| *known == algorithm).map_or("?", |(name, _)| name)
}

/// Whose tokens are accepted, and on which terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Issuer {
    /// Equal to the token's `iss`, byte for byte.
    pub issuer: Arc<str>,
    pub audience: Audience,
    pub algorithms: Vec<Algorithm>,
    /// Accepted `typ`, compared without case; `at+jwt` also matches `application/at+jwt` (RFC 7515 section 4.1.9).
    pub types: Vec<String>,
    pub clock_skew: Duration,
    /// The most that `exp - iat` may be. It bounds how long a revocation has to be remembered.
    pub max_lifetime: Duration,
    /// A token has to say whose it is. Without, the subject of one that does not is empty.
    pub require_subject: bool,
    /// The gateway itself: its tokens belong to a family.
    pub own: bool,
}

/// For whom a token has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Audience {
    /// `aud` must hold at least one of these.
    OneOf(Vec<String>),
    /// Said outright: `aud` may be anything, or missing.
    Any,
}

/// A token whose signature, issuer, audience and types hold. Whether its time has come or passed, and whether it is
/// revoked, is asked on every request.
#[derive(Debug)]
pub struct VerifiedToken {
    pub issuer: Arc<str>,
    /// Issued by this gateway: it belongs to a family.
    pub own: bool,
    /// Empty if the token has none, where its issuer may leave it out.
    pub subject: String,
    pub scope: Vec<String>,
    pub jti: Option<String>,
    /// `iat`; 1970 if there is none, so that every watermark concerns it.
    pub issued_at: UnixTime,
    /// Refused before this: the later of `nbf` and `iat`, with the clock skew taken off.
    pub not_before: UnixTime,
    /// Refused from this on: `exp`, with the clock skew added.
    pub expires: UnixTime,
    /// `sid` and `rgn` of our own tokens: the family, and the generation the token was issued with.
    pub family: Option<TokenId>,
    pub generation: Option<u64>,
    pub claims: Map<String, Value>,
    /// On which terms it was taken.
    policy: Arc<Issuer>,
    /// By whose signature; `None` until that was checked.
    signer: Option<key_set::Signer>,
}

/// How far past its `exp` a token is still taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Live,
    /// Refreshing is what people do with an expired token.
    ExpiredUpTo(Duration),
}

impl VerifiedToken {
    /// Has its time come, and not passed? Asked on every request, also of a cached token.
    pub fn check_time(&self, now: UnixTime, validity: Validity) -> Result<(), Reject> {
        let end = match validity {
            Validity::Live => self.expires,
            Validity::ExpiredUpTo(span) => self.expires + span,
        };
        if now >= end {
            let late = now.since(self.expires).as_secs();
            return Err(Reject::new(Reason::Expired, format!("expired {late}s ago, clock skew included")));
        }
        if now < self.not_before {
            let early = self.not_before.since(now).as_secs();
            return Err(Reject::new(Reason::NotYetValid, format!("valid in {early}s, clock skew included")));
        }
        Ok(())
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        self.scope.iter().any(|held| held == scope)
    }
}

/// Base64url without padding and without stray bits: each value has one spelling only (RFC 7515 section 2).
pub(crate) fn decode_segment(segment: &str) -> Option<Vec<u8>> {
    BASE64.decode(segment).ok()
}

const BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

//! The settings of one issuer: which of its tokens are accepted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::algorithm::Algorithm;

/// An issuer, and the conditions under which its tokens are accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Issuer {
    /// Must equal the `iss` claim, byte for byte.
    pub issuer: Arc<str>,
    pub audience: Audience,
    /// `route.resource` of all routes. A token for one of these alone is accepted, and is good there alone
    /// ([`super::NeededAudience`]).
    pub resources: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    /// Accepted values of `typ`, compared without case; `at+jwt` also matches `application/at+jwt` (RFC 7515 section
    /// 4.1.9).
    pub types: Vec<String>,
    pub clock_skew: Duration,
    /// Maximum of `exp - iat`. It bounds how long the store remembers a revocation.
    pub max_lifetime: Duration,
    /// If true, a token needs a non-empty `sub`. If false, a token without `sub` gets an empty subject.
    pub require_subject: bool,
    pub confirmation: Confirmation,
    /// True for the gateway itself: its tokens belong to a family.
    pub own: bool,
}

/// `issuer.cnf`: what happens to a token that is bound to a key of its client (claim `cnf`, RFC 7800).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The token needs a proof that the client has the key, as `route.proof` says.
    Check,
    Reject,
    /// The token is accepted without a proof.
    Ignore,
}

/// The accepted values of the `aud` claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Audience {
    /// `aud` must contain at least one of these.
    OneOf(Vec<String>),
    /// `aud` can be anything, or missing. The configuration must say so explicitly.
    Any,
}

impl Audience {
    /// Returns true if the claim `aud` has one of these values, and no value that is not a string.
    pub(super) fn is_named_in(&self, claims: &Map<String, Value>) -> bool {
        match self {
            Audience::Any => true,
            Audience::OneOf(accepted) => names_one_of(claims, accepted),
        }
    }
}

/// As [`Audience::is_named_in`].
pub(super) fn names_one_of(claims: &Map<String, Value>, accepted: &[String]) -> bool {
    let is_accepted = |value: &Value| value.as_str().is_some_and(|aud| accepted.iter().any(|ours| ours == aud));
    match claims.get("aud") {
        Some(Value::Array(several)) => several.iter().all(Value::is_string) && several.iter().any(is_accepted),
        Some(one) => is_accepted(one),
        None => false,
    }
}

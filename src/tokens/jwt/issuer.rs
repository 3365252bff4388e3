//! The settings of one issuer: which of its tokens are accepted.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::Algorithm;

/// An issuer, and the conditions under which its tokens are accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Issuer {
    /// Must equal the `iss` claim, byte for byte.
    pub issuer: Arc<str>,
    pub audience: Audience,
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

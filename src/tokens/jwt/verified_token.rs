//! The result of a verification: a token with a valid signature.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::issuer::Issuer;
use super::key::Signer;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// A token with a valid signature, issuer, audience and type. Its validity in time and its revocation are checked on
/// every request.
#[derive(Debug)]
pub struct VerifiedToken {
    pub issuer: Arc<str>,
    /// True if this gateway issued the token: it then belongs to a family.
    pub own: bool,
    /// Empty if the token has no subject and its issuer does not require one.
    pub subject: String,
    pub scope: Vec<String>,
    pub jti: Option<String>,
    /// What watermarks are compared with. For a token of this gateway it is the time of the login (`auth_time_ms`),
    /// which a refresh does not change. Otherwise it is `iat`; 1970 if there is none, so that every watermark applies.
    pub dated: UnixTime,
    /// The token is valid from here on: the later of `nbf` and `iat`, minus the clock skew.
    pub not_before: UnixTime,
    /// The token is invalid from here on: `exp` plus the clock skew.
    pub expires: UnixTime,
    /// The claim `sid` of the gateway's own tokens.
    pub family: Option<TokenId>,
    /// The claim `rgn` of the gateway's own tokens: the generation that the token was issued with.
    pub generation: Option<u64>,
    pub claims: Map<String, Value>,
    /// The issuer settings that the token was checked against.
    pub(super) policy: Arc<Issuer>,
    /// The key that verified the signature; `None` until the signature was checked.
    pub(super) signer: Option<Signer>,
}

/// How far past its `exp` a token is still accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Live,
    /// For refresh requests: clients refresh when their access token has expired.
    ExpiredUpTo(Duration),
}

impl VerifiedToken {
    /// Checks `not_before` and `expires`. Runs on every request, also for a cached token.
    pub fn check_time(&self, now: UnixTime, validity: Validity) -> Result<(), Reject> {
        let end = match validity {
            Validity::Live => self.expires,
            Validity::ExpiredUpTo(span) => self.expires + span,
        };
        if now >= end {
            let late = now.since(self.expires).as_secs();
            return Err(Reject::new(Reason::Expired, format!("expired {late}s ago, clock skew included")));
        }
        if now < self.not_before && !(validity != Validity::Live && self.is_own_dated_ahead()) {
            let early = self.not_before.since(now).as_secs();
            return Err(Reject::new(Reason::NotYetValid, format!("valid in {early}s, clock skew included")));
        }
        Ok(())
    }

    /// Returns true for a token of this gateway that only its `iat` makes not valid yet: it was issued before the clock
    /// was set back. Its client must be able to refresh, or it would be locked out for as long as the step.
    fn is_own_dated_ahead(&self) -> bool {
        self.own && !self.claims.contains_key("nbf")
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        self.scope.iter().any(|held| held == scope)
    }
}

#[cfg(test)]
impl VerifiedToken {
    /// A token that only has a subject, for tests of other modules.
    pub(crate) fn with_subject(subject: String) -> Self {
        use super::issuer::{Audience, Confirmation};
        let policy = Issuer {
            issuer: "https://login.example".into(),
            audience: Audience::Any,
            algorithms: Vec::new(),
            types: Vec::new(),
            clock_skew: Duration::ZERO,
            max_lifetime: Duration::ZERO,
            require_subject: false,
            own: false,
            confirmation: Confirmation::Reject,
        };
        VerifiedToken {
            issuer: policy.issuer.clone(),
            own: false,
            subject,
            scope: Vec::new(),
            jti: None,
            dated: UnixTime::default(),
            not_before: UnixTime::default(),
            expires: UnixTime::MAX,
            family: None,
            generation: None,
            claims: Map::new(),
            policy: Arc::new(policy),
            signer: None,
        }
    }
}

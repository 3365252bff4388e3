//! A signed token that is no access token: an ID token, a logout token, a security event token. The signature, the
//! issuer and the algorithm are checked here; everything else is up to who uses it.

use serde_json::{Map, Value};

use super::json::quoted;
use super::jws::Jws;
use super::verify::TrustedIssuer;
use crate::types::reject::{Reason, Reject};
use crate::types::step::StepReporter;

/// A token with a valid signature of its issuer. No `Debug`: it can have claims about a person.
pub struct SignedToken {
    pub header: Map<String, Value>,
    pub claims: Map<String, Value>,
}

/// Verifies the signature of a token of this issuer. Its `iss` must be that of the issuer.
///
/// # Errors
/// `UnknownKey` if its key may be newer than those of the issuer that are known here.
pub fn verify_signed(token: &str, issuer: &TrustedIssuer) -> Result<SignedToken, Reject> {
    let unverified = UnverifiedToken::parse(token)?;
    unverified.verify(issuer)?;
    Ok(SignedToken { header: unverified.jws.header, claims: unverified.claims })
}

/// A token with a signature that was not verified yet. Its claims may only lead to a rejection: they cost less to check
/// than the signature.
pub struct UnverifiedToken<'t> {
    jws: Jws<'t>,
    claims: Map<String, Value>,
}

impl<'t> UnverifiedToken<'t> {
    pub fn parse(token: &'t str) -> Result<Self, Reject> {
        let jws = Jws::parse(token)?;
        let claims = jws.claims()?;
        Ok(UnverifiedToken { jws, claims })
    }

    pub fn header(&self) -> &Map<String, Value> {
        &self.jws.header
    }

    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// As [`verify_signed`].
    pub fn verify(&self, issuer: &TrustedIssuer) -> Result<(), Reject> {
        let policy = &issuer.policy;
        match self.claims.get("iss").and_then(Value::as_str) {
            Some(name) if *name == *policy.issuer => {}
            other => return Err(Reject::new(Reason::UnknownIssuer, format!("iss is {}", quoted(other)))),
        }
        let algorithm = self.jws.algorithm(|algorithm| policy.algorithms.contains(&algorithm))?;
        self.jws.verify(&issuer.keys, algorithm, StepReporter::OFF).map(drop)
    }
}

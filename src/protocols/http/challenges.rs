//! `WWW-Authenticate` of a rejection: the schemes that the client can use, and what was wrong (RFC 6750 section 3, RFC
//! 9449 section 7.1). Pure.

use http::HeaderValue;

use crate::tokens::dpop::PROOF_ALGORITHMS;
use crate::types::reject::{Reason, Reject};

/// The scheme Bearer without an error.
pub static REALM: HeaderValue = HeaderValue::from_static("Bearer realm=\"bearward\"");

/// For a client that used the scheme Basic (RFC 7617).
static BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"bearward\", charset=\"UTF-8\"");

/// The schemes that a rejected request could have used.
#[derive(Clone)]
pub struct Challenges<'c> {
    /// The beginning of the challenge for the scheme Bearer. `None` if the scheme is not accepted.
    bearer: Option<&'c HeaderValue>,
    /// If true, the scheme DPoP is accepted.
    dpop: bool,
    /// If true, the client used the scheme DPoP.
    tried_dpop: bool,
    /// The scopes that a token needs, if that is all that is wrong. Empty: none, or none that a client may ask for.
    scope: String,
}

impl<'c> Challenges<'c> {
    pub fn bearer(challenge: &'c HeaderValue) -> Self {
        Challenges { bearer: Some(challenge), dpop: false, tried_dpop: false, scope: String::new() }
    }

    /// Also the scheme DPoP. `tried`: the client used it.
    pub fn and_dpop(self, tried: bool) -> Self {
        Challenges { dpop: true, tried_dpop: tried, ..self }
    }

    pub fn only_dpop() -> Self {
        Challenges { bearer: None, dpop: true, tried_dpop: true, scope: String::new() }
    }

    /// Also the scopes that a token needs (RFC 6750 section 3), separated by spaces.
    pub fn with_scope(self, scope: String) -> Self {
        Challenges { scope, ..self }
    }

    /// One challenge for each scheme. The error is in that of the scheme which the client used (RFC 9449 section 7.2),
    /// and that one comes first.
    pub(super) fn of(self, reject: &Reject) -> Vec<HeaderValue> {
        if !reject.reason.has_challenge() {
            return Vec::new();
        }
        if reject.used_basic() {
            return vec![BASIC.clone()];
        }
        // A rejection for a scope names what it needs itself.
        let scope = reject.scope().and_then(|scope| scope.to_str().ok()).unwrap_or(&self.scope);
        let error = error(reject);
        let is_of_dpop = self.dpop && (self.tried_dpop || self.bearer.is_none() || reject.reason.is_about_proof());
        // Without an error, each scheme is as good as the other one.
        let room = error.as_ref().map_or(0, String::len)
            + scope.len()
            + ", scope=\"\", algs=\"\"".len()
            + PROOF_ALGORITHMS.len();
        let describe = |beginning: &str, separator: &'static str, is_used: bool| {
            let mut text = String::with_capacity(beginning.len() + room);
            text.push_str(beginning);
            let mut separator = separator;
            if let Some(error) = error.as_deref()
                && is_used
            {
                text.push_str(separator);
                text.push_str(error);
                separator = ", ";
            }
            if !scope.is_empty() && (is_used || error.is_none()) {
                text.push_str(separator);
                text.push_str("scope=\"");
                text.push_str(scope);
                text.push('"');
            }
            text
        };
        let bearer = self.bearer.and_then(|challenge| challenge.to_str().ok());
        let bearer = bearer.map(|challenge| describe(challenge, ", ", !is_of_dpop));
        let dpop = self.dpop.then(|| {
            let mut text = describe("DPoP", " ", is_of_dpop);
            text.push_str(if text.len() == "DPoP".len() { " algs=\"" } else { ", algs=\"" });
            text.push_str(PROOF_ALGORITHMS);
            text.push('"');
            text
        });
        let ordered = if is_of_dpop { [dpop, bearer] } else { [bearer, dpop] };
        ordered.into_iter().flatten().filter_map(|text| HeaderValue::from_str(&text).ok()).collect()
    }
}

/// A request without a token gets no error code.
fn error(reject: &Reject) -> Option<String> {
    if matches!(reject.reason, Reason::NoToken | Reason::AdminTokenWrong) {
        return None;
    }
    Some(format!("error=\"{}\", error_description=\"{}\"", reject.reason.public_code(), reject.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEARER: &str = "Bearer realm=\"bearward\"";
    const DPOP: &str = "DPoP algs=";

    #[test]
    fn the_error_is_in_the_challenge_of_the_scheme_that_was_used() {
        let both = |tried| Challenges::bearer(&REALM).and_dpop(tried);
        for (challenges, reason, expected) in [
            (Challenges::bearer(&REALM), Reason::NoToken, &[BEARER][..]),
            (Challenges::bearer(&REALM), Reason::Expired, &["Bearer realm=\"bearward\", error="]),
            (both(false), Reason::NoToken, &[BEARER, DPOP]),
            (both(false), Reason::Expired, &["Bearer realm=\"bearward\", error=", DPOP]),
            (both(true), Reason::Expired, &["DPoP error=\"invalid_token\"", BEARER]),
            (both(true), Reason::ProofMissing, &["DPoP error=\"invalid_dpop_proof\"", BEARER]),
            (both(false), Reason::BoundToKey, &["DPoP error=\"invalid_token\"", BEARER]),
            (Challenges::only_dpop(), Reason::NoToken, &[DPOP]),
            (Challenges::only_dpop(), Reason::Expired, &["DPoP error=\"invalid_token\""]),
            (both(true), Reason::ProofsFull, &[]),
        ] {
            let found = challenges.of(&reason.into());
            let texts: Vec<_> = found.iter().map(|value| value.to_str().expect("ASCII")).collect();
            let matches = texts.iter().zip(expected).all(|(text, beginning)| text.starts_with(beginning));
            assert!(matches && texts.len() == expected.len(), "{reason:?}: {texts:?}");
        }
    }
}

//! The choice of the requests that need a proof. Pure.

use std::sync::{Arc, OnceLock};

use crate::auth::bearer::TokenScheme;
use crate::tokens::dpop::{DpopProof, KnownHeader, access_token_hash};
use crate::tokens::jwt::VerifiedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// `route.proof`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProofRule {
    /// No proof is checked. A bound token is accepted as a bearer token.
    Off,
    /// A bound token needs its proof. Other tokens need none.
    #[default]
    IfBound,
    /// Every token must be bound.
    Required,
}

/// What each proof beside a token is compared with. Kept with the token in the cache.
pub struct TokenBinding {
    pub key: Thumbprint,
    /// `ath` of its proofs.
    pub ath: Box<str>,
    /// Of the first proof with a good signature.
    known: OnceLock<KnownHeader>,
}

impl TokenBinding {
    /// `None` for a token that is not bound. `text`: the token as sent.
    pub fn of(token: &VerifiedToken, text: &str) -> Option<Arc<Self>> {
        let key = token.bound_to?;
        Some(Arc::new(TokenBinding { key, ath: access_token_hash(text).into(), known: OnceLock::new() }))
    }

    pub fn known_header(&self) -> Option<&KnownHeader> {
        self.known.get()
    }

    /// The signature of this proof is good, and its key is that of the token.
    pub fn note_good(&self, proof: &DpopProof<'_>) {
        if self.known.get().is_none()
            && let Some(header) = KnownHeader::of(proof)
        {
            // Another request may have been faster.
            let _ = self.known.set(header);
        }
    }
}

impl ProofRule {
    /// The binding that the request must prove. `None` if it needs no proof.
    ///
    /// # Errors
    /// If no proof could help: RFC 9449 section 7.2 forbids a bound token in the scheme Bearer, which a server without
    /// DPoP would accept from a thief.
    pub fn needs(self, scheme: TokenScheme, binding: Option<&TokenBinding>) -> Result<Option<&TokenBinding>, Reject> {
        match (self, binding, scheme) {
            (ProofRule::Off, ..) => Ok(None),
            (_, Some(_), TokenScheme::Bearer) => {
                Err(Reject::new(Reason::BoundToKey, "a token with cnf.jkt in the scheme Bearer instead of DPoP"))
            }
            (_, Some(binding), _) => Ok(Some(binding)),
            (ProofRule::Required, None, _) => {
                Err(Reject::new(Reason::TokenNotBound, "the route has proof = \"required\", and the token has no cnf"))
            }
            (_, None, TokenScheme::Dpop) => {
                Err(Reject::new(Reason::TokenNotBound, "a token without cnf in the scheme DPoP"))
            }
            (ProofRule::IfBound, None, _) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_token_needs_its_proof_and_its_scheme() {
        use ProofRule::{IfBound, Off, Required};
        use TokenScheme::{Bearer, Dpop, Other};
        let key = Thumbprint::parse("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs").expect("a thumbprint");
        let binding = TokenBinding { key, ath: "x".into(), known: OnceLock::new() };
        let proof = Ok(true);
        let none = Ok(false);
        let as_bearer = Err(Reason::BoundToKey);
        let unbound = Err(Reason::TokenNotBound);
        for (rule, scheme, with_bound, with_unbound) in [
            (Off, Bearer, none, none),
            (Off, Dpop, none, none),
            (Off, Other, none, none),
            (IfBound, Bearer, as_bearer, none),
            (IfBound, Dpop, proof, unbound),
            (IfBound, Other, proof, none),
            (Required, Bearer, as_bearer, unbound),
            (Required, Dpop, proof, unbound),
            (Required, Other, proof, unbound),
        ] {
            for (binding, expected) in [(Some(&binding), with_bound), (None, with_unbound)] {
                let needed = rule.needs(scheme, binding).map(|needed| needed.is_some());
                assert_eq!(needed.map_err(|reject| reject.reason), expected, "{rule:?} {scheme:?}");
            }
        }
    }
}

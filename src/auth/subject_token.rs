//! Verifies the subject token of a token exchange (RFC 8693): a token of another issuer that is no Bearer here. All
//! checks are those of a request, except for `aud` and `typ`, which the rule of the exchange decides.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::revocations::RevocationKeys;
use crate::auth::stale::check_freshness;
use crate::auth::verify_jwt::issuer_of;
use crate::tokens::jwt::verify::{TrustedIssuer, unverified_issuer, verify};
use crate::tokens::jwt::{Audience, Confirmation, Issuer, Validity, VerifiedToken};
use crate::types::reject::{Reason, Reject};

/// Which `typ` a subject token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectType {
    /// Those of the issuer's access tokens.
    OfIssuer,
    /// `JWT`, or none: an ID token.
    IdToken,
}

/// Verifies a token of another issuer. It is good for nothing before its audience is checked.
pub async fn verify_subject_token(
    authenticator: &Authenticator,
    token: &str,
    kind: SubjectType,
    context: &AuthContext<'_>,
) -> Result<VerifiedToken, Reject> {
    let bearer = BearerToken::from_text(token, authenticator.token_size)?;
    let known = &authenticator.known;
    let verify = move || verify_once(known, bearer, kind, context);
    let verified = known.keyring.verify_with_new_keys(|| issuer_of(bearer), context.clock, verify).await?;
    if known.revocations.is_revoked(&RevocationKeys::of(&verified)) {
        return Err(Reason::Revoked.into());
    }
    check_freshness(authenticator.freshness.as_deref(), context.serves_stale)?;
    Ok(verified)
}

async fn verify_once(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    kind: SubjectType,
    context: &AuthContext<'_>,
) -> Result<VerifiedToken, Reject> {
    let text = bearer.text()?;
    let named = unverified_issuer(text).ok_or(Reason::UnknownIssuer)?;
    known.check_before_work(bearer, known.keyring.revision(), context)?;
    let permit = context.signature_queue.next().await;
    let key_revision = known.keyring.revision();
    let keys = known.keyring.keys();
    // The first one is the gateway itself.
    let found = keys.issuers.iter().skip(1).find(|issuer| *issuer.policy.issuer == *named);
    let found = found.ok_or_else(|| Reject::new(Reason::UnknownIssuer, "iss is no [[issuer]]"))?;
    let issuer = TrustedIssuer { policy: Arc::new(policy(&found.policy, kind)), keys: found.keys.clone() };
    let verified = verify(text, &[issuer], context.now, Validity::Live, context.steps);
    if verified.as_ref().is_err_and(|reject| reject.reason == Reason::BadSignature) {
        context.payer.count(context.clock.uptime());
        known.token_cache.insert_bad_signature(text, key_revision);
    }
    permit.end().await;
    verified
}

/// A token that is bound to a key of its client is never exchanged: the new one would be a plain Bearer.
fn policy(of_requests: &Issuer, kind: SubjectType) -> Issuer {
    let types = match kind {
        SubjectType::OfIssuer => of_requests.types.clone(),
        SubjectType::IdToken => vec!["JWT".to_owned()],
    };
    Issuer { audience: Audience::Any, types, confirmation: Confirmation::Reject, ..of_requests.clone() }
}

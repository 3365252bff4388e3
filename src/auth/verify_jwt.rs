//! Verifies a JWT: its signature is checked. Each worker checks one signature at a time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::keyring::RefetchOutcome;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::signature_queue::SignaturePermit;
use crate::auth::token_cache::CachedToken;
use crate::tokens::jwt::verify::{unverified_issuer, verify};
use crate::tokens::jwt::{Validity, VerifiedToken};
use crate::types::reject::{Reason, Reject};

/// A token that may have its signature checked now.
struct Queued<'q, 't> {
    permit: SignaturePermit<'q>,
    /// Revision of the keyring, read before its keys.
    key_revision: u64,
    text: &'t str,
}

/// Verifies a token that is not in the cache. Fetches the issuer's keys once if its key is unknown.
pub(super) async fn verify_jwt(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let verify = move || verify_and_cache(known, bearer, context);
    known.keyring.verify_with_new_keys(|| issuer_of(bearer), context.clock, verify).await
}

/// Verifies a token of the gateway itself that may have expired up to `idle` ago.
pub(super) async fn verify_expired(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    idle: Duration,
    context: &AuthContext<'_>,
) -> Result<VerifiedToken, Reject> {
    // Another gateway may have issued it a moment ago.
    let verify = move || verify_expired_once(known, bearer, idle, context);
    let own = || issuer_of(bearer).filter(|issuer| known.keyring.is_own(issuer));
    known.keyring.verify_with_new_keys(own, context.clock, verify).await
}

/// Verifies a token that was just issued. Neither counts it as used nor caches it: the client has not got it yet.
pub(super) async fn verify_issued(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let queued = queue_for_signature(known, bearer, context).await?;
    let result = check_signature(known, &queued, context, Validity::Live);
    let text = queued.text;
    let key_revision = queued.key_revision;
    release(queued.permit, &result).await;
    let token = result?;
    let identity = known.identity.of(&token);
    let cached = Arc::new(CachedToken::new(text, token, identity, key_revision));
    known.renew_streams(&cached, context);
    Ok(cached)
}

async fn verify_and_cache(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let queued = queue_for_signature(known, bearer, context).await?;
    if queued.permit.has_waited
        && let Some(cached) = known.find(bearer, queued.key_revision)
    {
        cached.check_time(context.now).inspect_err(|_| context.note_rejected(&cached.token))?;
        return Ok(cached);
    }
    let cached = verify_queued(known, &queued, context);
    release(queued.permit, &cached).await;
    match cached {
        // A signature that was checked now: a bad token that comes again is rejected above, at little cost.
        Err(bad) if is_bad_signature(&bad) => Box::pin(verify_with_replaced_key(known, bearer, bad, context)).await,
        cached => cached,
    }
}

/// Verifies a token again that no known key has signed, if its issuer gives other keys: it may have replaced one under
/// the same `kid`, or have none. It is asked as often as for an unknown key.
async fn verify_with_replaced_key(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    bad: Reject,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    // The gateway knows its own keys by their names.
    let Some(issuer) = issuer_of(bearer).filter(|issuer| !known.keyring.is_own(issuer)) else { return Err(bad) };
    let refetched = known.keyring.refetch(&issuer, context.clock.uptime()).await;
    if refetched.is_none_or(|refetched| refetched.outcome != RefetchOutcome::Fetched) {
        return Err(bad);
    }
    let queued = queue_for_signature(known, bearer, context).await?;
    let cached = verify_queued(known, &queued, context);
    release(queued.permit, &cached).await;
    cached
}

/// Waits until this token may have its signature checked.
async fn queue_for_signature<'q, 't>(
    known: &KnownTokens,
    bearer: BearerToken<'t>,
    context: &AuthContext<'q>,
) -> Result<Queued<'q, 't>, Reject> {
    let text = bearer.text()?;
    known.check_before_work(bearer, known.keyring.revision(), context)?;
    let permit = context.signature_queue.next().await;
    // Read before the keys: if they are swapped meanwhile, what is cached here belongs to the past revision.
    let key_revision = known.keyring.revision();
    if permit.has_waited {
        known.check_before_work(bearer, key_revision, context)?;
    }
    Ok(Queued { permit, key_revision, text })
}

fn verify_queued(
    known: &KnownTokens,
    queued: &Queued<'_, '_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let token = check_signature(known, queued, context, Validity::Live)?;
    let identity = known.identity.of(&token);
    let cached = Arc::new(CachedToken::new(queued.text, token, identity, queued.key_revision));
    cached.check_revocation(&known.revocations).inspect_err(|_| context.note_rejected(&cached.token))?;
    if let (Some(family), Some(generation)) = (cached.token.family, cached.token.generation) {
        known.seen_generations.record(family, generation);
        known.renew_streams(&cached, context);
    }
    known.token_cache.insert(cached.clone());
    Ok(cached)
}

/// Checks the signature and the claims.
fn check_signature(
    known: &KnownTokens,
    queued: &Queued<'_, '_>,
    context: &AuthContext<'_>,
    validity: Validity,
) -> Result<VerifiedToken, Reject> {
    let keys = known.keyring.keys();
    let verify_with = |issuers| verify(queued.text, issuers, context.now, validity, context.steps);
    let result = match validity {
        Validity::Live => verify_with(&keys.issuers),
        Validity::ExpiredUpTo(_) => verify_with(&keys.issuers_at_refresh()),
    };
    // Only a bad signature is cached: it costs a signature check, and no other rejection is final.
    if result.as_ref().is_err_and(is_bad_signature) {
        context.payer.count(context.clock.uptime());
        known.token_cache.insert_bad_signature(queued.text, queued.key_revision);
    }
    result
}

async fn verify_expired_once(
    known: &KnownTokens,
    bearer: BearerToken<'_>,
    idle: Duration,
    context: &AuthContext<'_>,
) -> Result<VerifiedToken, Reject> {
    let queued = queue_for_signature(known, bearer, context).await?;
    let result = check_signature(known, &queued, context, Validity::ExpiredUpTo(idle));
    release(queued.permit, &result).await;
    result
}

/// Lets the next token have its signature checked: at once if this one cost no signature, otherwise after other
/// requests.
async fn release<T>(permit: SignaturePermit<'_>, result: &Result<T, Reject>) {
    if result.as_ref().err().is_none_or(is_bad_signature) {
        permit.end().await;
    }
}

/// Returns the issuer that a token names.
pub(super) fn issuer_of(bearer: BearerToken<'_>) -> Option<Cow<'static, str>> {
    unverified_issuer(bearer.text().ok()?).map(Cow::Owned)
}

/// Returns true if the signature was checked and is bad. Every other rejection happens before that check.
fn is_bad_signature(reject: &Reject) -> bool {
    reject.reason == Reason::BadSignature
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::auth::signature_queue::SignatureQueue;

    #[tokio::test]
    async fn other_requests_run_after_a_signature_only() {
        let queue = SignatureQueue::new();
        for (result, waits) in [
            (Ok(()), true),
            (Err(Reason::BadSignature.into()), true),
            (Err(Reason::Expired.into()), false),
            (Err(Reason::UnknownKey.into()), false),
        ] {
            let permit = queue.next().await;
            let polled = pin!(release(permit, &result)).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled.is_pending(), waits, "{:?}", result.err().map(|reject: Reject| reject.reason));
        }
    }
}

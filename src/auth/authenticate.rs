//! Authentication: verifies the token of a request and returns a [`Caller`].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::auth::api_keys::{ApiKeys, BadKey};
use crate::auth::bearer::{self, BearerToken, TokenScheme};
use crate::auth::context::AuthContext;
use crate::auth::flights::{Flights, LookupOutcome};
use crate::auth::handles::Handles;
use crate::auth::identity::Identity;
use crate::auth::introspection::Introspection;
use crate::auth::keyring::{Keyring, RefetchOutcome};
use crate::auth::proofs::{OwnHosts, ProofRule, Proofs};
use crate::auth::renewals::Renewals;
use crate::auth::revocations::{RevocationKeys, Revocations};
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::signature_queue::SignaturePermit;
use crate::auth::stale::check_freshness;
use crate::auth::token_cache::{CachedToken, TokenCache};
use crate::store::Freshness;
use crate::tokens::bound::Bound;
use crate::tokens::dpop::VerifiedProof;
use crate::tokens::family::api_key::is_api_key;
use crate::tokens::family::handle::is_handle;
use crate::tokens::jwt::verify::{is_still_valid, unverified_issuer, verify};
use crate::tokens::jwt::{Validity, VerifiedToken};
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

/// Proof that a request carries a verified token that is neither expired nor revoked. Only this module makes one.
pub struct Caller {
    cached: Arc<CachedToken>,
    /// Boxed because few callers have one.
    proof: Option<Box<VerifiedProof>>,
}

impl Caller {
    pub fn token(&self) -> &Arc<VerifiedToken> {
        &self.cached.token
    }

    pub fn cached(&self) -> &Arc<CachedToken> {
        &self.cached
    }

    /// The proof that the client has the key of the token. `None` if it needs none.
    pub fn proof(&self) -> Option<&VerifiedProof> {
        self.proof.as_deref()
    }

    pub fn into_cached(self) -> Arc<CachedToken> {
        self.cached
    }
}

/// Verifies tokens with the keys, the cache and the revocations that all workers share.
pub struct Authenticator {
    pub keyring: Arc<Keyring>,
    pub revocations: Arc<Revocations>,
    pub token_cache: Arc<TokenCache>,
    pub seen_generations: Arc<SeenGenerations>,
    pub renewals: Arc<Renewals>,
    pub api_keys: Arc<ApiKeys>,
    pub introspection: Arc<Introspection>,
    pub handles: Arc<Handles>,
    /// Look-ups of credentials that run now.
    pub lookups: Flights<LookupOutcome>,
    pub proofs: Proofs,
    /// The names of this gateway, for which clients make proofs.
    pub own_hosts: OwnHosts,
    /// `limits.used_proofs`
    pub max_used_proofs: usize,
    /// `None`: this gateway is alone, and knows every revocation.
    pub freshness: Option<Arc<Freshness>>,
    pub identity: Identity,
    /// `limits.token_size`, in bytes.
    pub token_size: usize,
}

/// A token that may have its signature checked now.
struct Queued<'q, 't> {
    permit: SignaturePermit<'q>,
    /// Revision of the keyring, read before its keys.
    key_revision: u64,
    text: &'t str,
}

impl Authenticator {
    /// Returns the caller of a request, or why its token is rejected. A cached token waits for nothing. Any other token
    /// waits for the signature queue. If its key is unknown, it also waits until the issuer's keys are fetched.
    pub async fn authenticate(&self, bearer: BearerToken<'_>, context: &AuthContext<'_>) -> Result<Caller, Reject> {
        let found = self.find(bearer, self.keyring.revision());
        let cached = match found.filter(|found| !context.must_read(found)) {
            Some(cached) => {
                context.metrics.token_cache_hits.inc();
                // The cache remembers that the signature is good. Time and revocation are checked on every request.
                cached.check_time(context.now).inspect_err(|_| context.note_rejected(&cached.token))?;
                cached
            }
            None => {
                context.metrics.token_cache_misses.inc();
                // Boxed because it is rare: the future of every request is as large as its largest step.
                Box::pin(self.verify_new(bearer, context)).await?
            }
        };
        // A revoked API key has the same response as an unknown one.
        let revoked = |reject: Reject| match reject.reason {
            Reason::Revoked if cached.is_api_key => BadKey::Revoked.reject(),
            _ => reject,
        };
        self.check_revoked(&cached, context).map_err(revoked)?;
        context.steps.report(Step::Revocation, || "not revoked".into());
        context.check_audience(&cached.token)?;
        self.prove(cached, bearer.scheme(), context).await
    }

    /// The caller of a good token, if it has the proof that this token needs here. Most tokens need none.
    async fn prove(
        &self,
        cached: Arc<CachedToken>,
        scheme: TokenScheme,
        context: &AuthContext<'_>,
    ) -> Result<Caller, Reject> {
        let is_plain = !cached.is_bound && scheme != TokenScheme::Dpop;
        if is_plain && context.proof != ProofRule::Required || context.proof == ProofRule::Off {
            return Ok(Caller { cached, proof: None });
        }
        // Boxed because it is rare, as above.
        let checked = Box::pin(self.check_proof(&cached, scheme, context)).await;
        let proof = checked.inspect_err(|_| context.note_rejected(&cached.token))?;
        Ok(Caller { cached, proof: proof.map(Box::new) })
    }

    /// Rejects a revoked token, and every token while this gateway cannot know what is revoked.
    fn check_revoked(&self, cached: &CachedToken, context: &AuthContext<'_>) -> Result<(), Reject> {
        let revoked = cached.check_revocation(&self.revocations);
        let checked = revoked.and_then(|()| check_freshness(self.freshness.as_deref(), context.serves_stale));
        checked.inspect_err(|_| context.note_rejected(&cached.token))
    }

    /// Looks the token up in the cache. The caller reads `key_revision` before the keys, so that a swap in between is
    /// noticed.
    pub(super) fn find(&self, bearer: BearerToken<'_>, key_revision: u64) -> Option<Arc<CachedToken>> {
        self.token_cache.find(bearer, key_revision, |token| is_still_valid(token, &self.keyring.keys().issuers))
    }

    /// Verifies a token that is not in the cache. Fetches the issuer's keys once if its key is unknown.
    async fn verify_new(&self, bearer: BearerToken<'_>, context: &AuthContext<'_>) -> Result<Arc<CachedToken>, Reject> {
        if is_api_key(bearer.as_bytes()) {
            return self.verify_api_key(bearer, context).await;
        }
        // Before any question: a session of the gateway itself is shown to no other server.
        if is_handle(bearer.as_bytes()) {
            return self.verify_handle(bearer, context).await;
        }
        if let Some(asked) = self.introspection.target(bearer) {
            return self.verify_opaque(bearer, asked, context).await;
        }
        let verify = move || self.verify_and_cache(bearer, context);
        self.keyring.verify_with_new_keys(|| issuer_of(bearer), context.clock, verify).await
    }

    async fn verify_and_cache(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let queued = self.queue_for_signature(bearer, context).await?;
        if queued.permit.has_waited
            && let Some(cached) = self.find(bearer, queued.key_revision)
        {
            cached.check_time(context.now).inspect_err(|_| context.note_rejected(&cached.token))?;
            return Ok(cached);
        }
        let cached = self.verify_queued(&queued, context);
        release(queued.permit, &cached).await;
        match cached {
            // A signature that was checked now: a bad token that comes again is rejected above, at little cost.
            Err(bad) if is_bad_signature(&bad) => Box::pin(self.verify_with_replaced_key(bearer, bad, context)).await,
            cached => cached,
        }
    }

    /// Verifies a token again that no known key has signed, if its issuer gives other keys: it may have replaced one
    /// under the same `kid`, or have none. It is asked as often as for an unknown key.
    async fn verify_with_replaced_key(
        &self,
        bearer: BearerToken<'_>,
        bad: Reject,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        // The gateway knows its own keys by their names.
        let Some(issuer) = issuer_of(bearer).filter(|issuer| !self.keyring.is_own(issuer)) else { return Err(bad) };
        let refetched = self.keyring.refetch(&issuer, context.clock.uptime()).await;
        if refetched.is_none_or(|refetched| refetched.outcome != RefetchOutcome::Fetched) {
            return Err(bad);
        }
        let queued = self.queue_for_signature(bearer, context).await?;
        let cached = self.verify_queued(&queued, context);
        release(queued.permit, &cached).await;
        cached
    }

    /// Waits until this token may have its signature checked.
    async fn queue_for_signature<'q, 't>(
        &self,
        bearer: BearerToken<'t>,
        context: &AuthContext<'q>,
    ) -> Result<Queued<'q, 't>, Reject> {
        let text = bearer.text()?;
        self.check_before_work(bearer, self.keyring.revision(), context)?;
        let permit = context.signature_queue.next().await;
        // Read before the keys: if they are swapped meanwhile, what is cached here belongs to the past revision.
        let key_revision = self.keyring.revision();
        if permit.has_waited {
            self.check_before_work(bearer, key_revision, context)?;
        }
        Ok(Queued { permit, key_revision, text })
    }

    fn verify_queued(&self, queued: &Queued<'_, '_>, context: &AuthContext<'_>) -> Result<Arc<CachedToken>, Reject> {
        let token = self.check_signature(queued, context, Validity::Live)?;
        let identity = self.identity.of(&token);
        let cached = Arc::new(CachedToken::new(queued.text, token, identity, queued.key_revision));
        cached.check_revocation(&self.revocations).inspect_err(|_| context.note_rejected(&cached.token))?;
        if let (Some(family), Some(generation)) = (cached.token.family, cached.token.generation) {
            self.seen_generations.record(family, generation);
            self.renewals.record(family, &cached, context.clock.uptime());
        }
        self.token_cache.insert(cached.clone());
        Ok(cached)
    }

    /// Makes the checks that cost no signature. A repeated bad token costs one check of its signature in total.
    /// Different bad tokens of one payer cost as many as its limit allows.
    pub(super) fn check_before_work(
        &self,
        bearer: BearerToken<'_>,
        key_revision: u64,
        context: &AuthContext<'_>,
    ) -> Result<(), Reject> {
        if self.token_cache.has_bad_signature(bearer, key_revision) {
            return Err(Reject::new(Reason::BadSignature, "the same token again"));
        }
        context.payer.check(context.clock.uptime())
    }

    /// Checks the signature and the claims.
    fn check_signature(
        &self,
        queued: &Queued<'_, '_>,
        context: &AuthContext<'_>,
        validity: Validity,
    ) -> Result<VerifiedToken, Reject> {
        let keys = self.keyring.keys();
        let verify_with = |issuers| verify(queued.text, issuers, context.now, validity, context.steps);
        let result = match validity {
            Validity::Live => verify_with(&keys.issuers),
            Validity::ExpiredUpTo(_) => verify_with(&keys.issuers_at_refresh()),
        };
        // Only a bad signature is cached: it costs a signature check, and no other rejection is final.
        if result.as_ref().is_err_and(is_bad_signature) {
            context.payer.count(context.clock.uptime());
            self.token_cache.insert_bad_signature(queued.text, queued.key_revision);
        }
        result
    }

    /// Verifies the token of a refresh, and what proves that it is the client's, if it is bound. It may have expired up
    /// to `idle` ago, because that is when clients refresh.
    ///
    /// A revoked family is not rejected here. The store rejects it as `invalid_grant`, because many clients refresh
    /// again on any 401 and would loop.
    pub async fn authenticate_refresh(
        &self,
        headers: &HeaderMap,
        idle: Duration,
        context: &AuthContext<'_>,
    ) -> Result<(VerifiedToken, Bound), Reject> {
        let bearer = bearer::find_with_scheme(headers, self.token_size)?;
        let token = self.authenticate_expired(bearer, idle, context).await?;
        let proved = self.refresh_proof(&token, bearer, context).await?;
        Ok((token, proved))
    }

    /// As [`Authenticator::authenticate_refresh`], for a token that was found elsewhere.
    pub async fn authenticate_expired(
        &self,
        bearer: BearerToken<'_>,
        idle: Duration,
        context: &AuthContext<'_>,
    ) -> Result<VerifiedToken, Reject> {
        // Another gateway may have issued it a moment ago.
        let verify = move || self.verify_expired(bearer, idle, context);
        let own = || issuer_of(bearer).filter(|issuer| self.keyring.is_own(issuer));
        let token = self.keyring.verify_with_new_keys(own, context.clock, verify).await?;
        if self.revocations.is_token_revoked(&RevocationKeys::of(&token)) {
            context.note_rejected(&Arc::new(token));
            return Err(Reason::Revoked.into());
        }
        context.audience.check(&token)?;
        Ok(token)
    }

    async fn verify_expired(
        &self,
        bearer: BearerToken<'_>,
        idle: Duration,
        context: &AuthContext<'_>,
    ) -> Result<VerifiedToken, Reject> {
        let queued = self.queue_for_signature(bearer, context).await?;
        let result = self.check_signature(&queued, context, Validity::ExpiredUpTo(idle));
        release(queued.permit, &result).await;
        result
    }
}

/// For tokens that the gateway issues to the client of the request itself.
impl Authenticator {
    /// Verifies a token that was just issued. Neither counts it as used nor caches it: the client has not got it yet.
    pub async fn authenticate_issued(&self, token: &str, context: &AuthContext<'_>) -> Result<Caller, Reject> {
        let queued = self.queue_for_signature(BearerToken::from_text(token, self.token_size)?, context).await?;
        let result = self.check_signature(&queued, context, Validity::Live);
        let text = queued.text;
        let key_revision = queued.key_revision;
        release(queued.permit, &result).await;
        let token = result?;
        let identity = self.identity.of(&token);
        let cached = Arc::new(CachedToken::new(text, token, identity, key_revision));
        if let Some(family) = cached.token.family {
            self.renewals.record(family, &cached, context.clock.uptime());
        }
        self.authenticate_known(cached, context).await
    }

    /// The caller of a token that was verified before.
    pub async fn authenticate_known(
        &self,
        cached: Arc<CachedToken>,
        context: &AuthContext<'_>,
    ) -> Result<Caller, Reject> {
        cached.check_time(context.now).inspect_err(|_| context.note_rejected(&cached.token))?;
        self.check_revoked(&cached, context)?;
        context.check_audience(&cached.token)?;
        self.prove(cached, TokenScheme::Other, context).await
    }
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

//! Authentication: verifies the token of a request and returns a [`Caller`].

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::auth::api_keys::{ApiKeys, BadKey};
use crate::auth::bearer::{self, BearerToken, TokenScheme};
use crate::auth::context::AuthContext;
use crate::auth::handles::Handles;
use crate::auth::introspection::Introspection;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::proof_verifier::ProofVerifier;
use crate::auth::proofs::ProofRule;
use crate::auth::revocations::RevocationKeys;
use crate::auth::stale::check_freshness;
use crate::auth::token_cache::CachedToken;
use crate::auth::verify_api_key::verify_api_key;
use crate::auth::verify_handle::verify_handle;
use crate::auth::verify_jwt::{verify_expired, verify_issued, verify_jwt};
use crate::auth::verify_opaque::verify_opaque;
use crate::store::Freshness;
use crate::tokens::bound::Bound;
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::dpop::VerifiedProof;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
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

/// Verifies the credentials of requests. The files that do the work do not know it: each takes the part that it needs.
pub struct Authenticator {
    pub known: KnownTokens,
    pub api_keys: Arc<ApiKeys>,
    pub introspection: Arc<Introspection>,
    pub handles: Arc<Handles>,
    pub proof_verifier: ProofVerifier,
    /// `None`: this gateway is alone, and knows every revocation.
    pub freshness: Option<Arc<Freshness>>,
    /// `limits.token_size`, in bytes.
    pub token_size: usize,
}

impl Authenticator {
    /// Returns the caller of a request, or why its token is rejected. A cached token waits for nothing. Any other token
    /// waits for the signature queue. If its key is unknown, it also waits until the issuer's keys are fetched.
    pub async fn authenticate(&self, bearer: BearerToken<'_>, context: &AuthContext<'_>) -> Result<Caller, Reject> {
        let found = self.known.find(bearer, self.known.keyring.revision());
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
            Reason::Revoked if cached.kind == CredentialKind::ApiKey => BadKey::Revoked.reject(),
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
        let checked = Box::pin(self.proof_verifier.check(&cached, scheme, context)).await;
        let proof = checked.inspect_err(|_| context.note_rejected(&cached.token))?;
        Ok(Caller { cached, proof: proof.map(Box::new) })
    }

    /// Rejects a revoked token, and every token while this gateway cannot know what is revoked.
    fn check_revoked(&self, cached: &CachedToken, context: &AuthContext<'_>) -> Result<(), Reject> {
        let revoked = cached.check_revocation(&self.known.revocations);
        let checked = revoked.and_then(|()| check_freshness(self.freshness.as_deref(), context.serves_stale));
        checked.inspect_err(|_| context.note_rejected(&cached.token))
    }

    /// Verifies a credential that is not in the cache, or must be looked up again, as its kind needs it.
    async fn verify_new(&self, bearer: BearerToken<'_>, context: &AuthContext<'_>) -> Result<Arc<CachedToken>, Reject> {
        let known = &self.known;
        // Before any question: a credential of the gateway itself is shown to no other server.
        match CredentialKind::of_own(bearer.as_bytes()) {
            Some(CredentialKind::ApiKey) => verify_api_key(known, &self.api_keys, bearer, context).await,
            Some(CredentialKind::Handle) => verify_handle(known, &self.handles, bearer, context).await,
            Some(CredentialKind::Jwt | CredentialKind::Opaque) | None => match self.introspection.target(bearer) {
                Some(issuer) => verify_opaque(known, &self.introspection, issuer, bearer, context).await,
                None => verify_jwt(known, bearer, context).await,
            },
        }
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
        let proved = self.proof_verifier.refresh_proof(&token, bearer, context).await?;
        Ok((token, proved))
    }

    /// As [`Authenticator::authenticate_refresh`], for a token that was found elsewhere.
    pub async fn authenticate_expired(
        &self,
        bearer: BearerToken<'_>,
        idle: Duration,
        context: &AuthContext<'_>,
    ) -> Result<VerifiedToken, Reject> {
        let token = verify_expired(&self.known, bearer, idle, context).await?;
        if self.known.revocations.is_token_revoked(&RevocationKeys::of(&token)) {
            context.note_rejected(&Arc::new(token));
            return Err(Reason::Revoked.into());
        }
        context.audience.check(&token)?;
        Ok(token)
    }
}

/// For tokens that the gateway issues to the client of the request itself.
impl Authenticator {
    /// Verifies a token that was just issued. Neither counts it as used nor caches it: the client has not got it yet.
    pub async fn authenticate_issued(&self, token: &str, context: &AuthContext<'_>) -> Result<Caller, Reject> {
        let bearer = BearerToken::from_text(token, self.token_size)?;
        let cached = verify_issued(&self.known, bearer, context).await?;
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

    /// Records the use of an API key by a request that is allowed.
    pub fn note_use(&self, caller: &Caller, now: UnixTime) {
        let known = caller.cached();
        if known.kind == CredentialKind::ApiKey {
            self.api_keys.note_use(known, now);
        }
    }
}

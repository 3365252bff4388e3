//! Step 1: from a request's token to a [`Caller`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::auth::bearer::{self, BearerToken};
use crate::auth::identity::Identity;
use crate::auth::keyring::{Keyring, RefetchOutcome};
use crate::auth::renewals::Renewals;
use crate::auth::revocations::{RevocationKeys, Revocations};
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::signature_queue::{SignaturePermit, SignatureQueue};
use crate::auth::token_cache::{CachedToken, TokenCache};
use crate::limits::limiter::Limiter;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tokens::jwt::verify::{is_still_valid, unverified_issuer, verify};
use crate::tokens::jwt::{Validity, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::{Step, Trace};

/// Who is asking: a token that is verified, in its time, and not revoked as of this request. Only this module makes one.
pub struct Caller {
    known: Arc<CachedToken>,
}

impl Caller {
    pub fn token(&self) -> &Arc<VerifiedToken> {
        &self.known.token
    }

    pub fn known(&self) -> &Arc<CachedToken> {
        &self.known
    }

    pub fn into_cached(self) -> Arc<CachedToken> {
        self.known
    }
}

/// Who asks to be believed, and the worker that has the work.
#[derive(Clone, Copy)]
pub struct Asker<'w> {
    pub address: IpAddr,
    /// Bad signatures of each address.
    pub failures: &'w Limiter,
    pub signature_queue: &'w SignatureQueue,
    pub metrics: &'w WorkerMetrics,
    pub trace: Trace<'w>,
}

pub struct Authenticator {
    pub keyring: Arc<Keyring>,
    pub revocations: Arc<Revocations>,
    pub token_cache: Arc<TokenCache>,
    pub seen_generations: Arc<SeenGenerations>,
    pub renewals: Arc<Renewals>,
    pub identity: Identity,
    /// `limits.token_size`
    pub token_size: usize,
}

impl Authenticator {
    /// From the one token of a request to its caller, if it is a good one. A known one waits for nothing; others for their turn,
    /// and if their key is unknown, until their issuer has been asked for it.
    pub async fn authenticate(
        &self,
        bearer: BearerToken<'_>,
        asker: Asker<'_>,
        now: UnixTime,
    ) -> Result<Caller, Reject> {
        let known = match self.find(bearer, self.keyring.generation()) {
            Some(known) => {
                asker.metrics.token_cache_hits.one();
                // Time and revocation are asked again: the cache remembers a signature, not a verdict.
                known.check_time(now)?;
                known
            }
            None => {
                asker.metrics.token_cache_misses.one();
                // Boxed, as the rare case: every request's future is as large as the largest step in it.
                Box::pin(self.verify_new(bearer, asker, now)).await?
            }
        };
        known.check_revocation(&self.revocations)?;
        asker.trace.step(Step::Revocation, || "not revoked".into());
        Ok(Caller { known })
    }

    /// A token that is known. The generation was read before the keys, as everywhere.
    fn find(&self, bearer: BearerToken<'_>, generation: u64) -> Option<Arc<CachedToken>> {
        self.token_cache.find(bearer, generation, |token| is_still_valid(token, &self.keyring.keys().issuers))
    }

    /// A token that is not known.
    async fn verify_new(
        &self,
        bearer: BearerToken<'_>,
        asker: Asker<'_>,
        now: UnixTime,
    ) -> Result<Arc<CachedToken>, Reject> {
        match self.verify_and_cache(bearer, asker, now).await {
            Err(unknown) if unknown.reason == Reason::UnknownKey => self.refetch_key(bearer, asker, now, unknown).await,
            verdict => verdict,
        }
    }

    async fn verify_and_cache(
        &self,
        bearer: BearerToken<'_>,
        asker: Asker<'_>,
        now: UnixTime,
    ) -> Result<Arc<CachedToken>, Reject> {
        let (permit, generation, text) = self.queue_for_signature(bearer, asker, now).await?;
        if permit.has_waited
            && let Some(known) = self.find(bearer, generation)
        {
            known.check_time(now)?;
            return Ok(known);
        }
        let known = self.cache(text, generation, asker, now);
        end(permit, &known).await;
        known
    }

    /// The turn to check a signature, of which generation the keys are that it is checked by, and what they are to check.
    async fn queue_for_signature<'w, 'r>(
        &self,
        bearer: BearerToken<'r>,
        asker: Asker<'w>,
        now: UnixTime,
    ) -> Result<(SignaturePermit<'w>, u64, &'r str), Reject> {
        let text = bearer.text()?;
        self.check_without_signature(bearer, self.keyring.generation(), asker, now)?;
        let permit = asker.signature_queue.next().await;
        // Before the keys: if they are swapped meanwhile, what is remembered here is of the past.
        let generation = self.keyring.generation();
        if permit.has_waited {
            self.check_without_signature(bearer, generation, asker, now)?;
        }
        Ok((permit, generation, text))
    }

    fn cache(&self, text: &str, generation: u64, asker: Asker<'_>, now: UnixTime) -> Result<Arc<CachedToken>, Reject> {
        let token = self.check_signature(text, generation, asker, now, Validity::Live)?;
        let identity = self.identity.of(&token);
        let known = Arc::new(CachedToken::new(text, token, identity, generation));
        known.check_revocation(&self.revocations)?;
        if let (Some(family), Some(generation)) = (known.token.family, known.token.generation) {
            self.seen_generations.note(family, generation);
            self.renewals.note(family, &known, now);
        }
        self.token_cache.insert(known.clone());
        Ok(known)
    }

    /// Before the costly step. One bad token sent again and again costs it once; many different ones from one address only so
    /// many times.
    fn check_without_signature(
        &self,
        bearer: BearerToken<'_>,
        generation: u64,
        asker: Asker<'_>,
        now: UnixTime,
    ) -> Result<(), Reject> {
        if self.token_cache.is_forged(bearer, generation) {
            return Err(Reject::new(Reason::BadSignature, "the same token again"));
        }
        if let Some(wait) = asker.failures.wait(asker.address, now) {
            let mut reject = Reject::new(Reason::RateLimited, "too many bad signatures from this address");
            reject.retry_after = Some(wait);
            return Err(reject);
        }
        Ok(())
    }

    /// The costly step.
    fn check_signature(
        &self,
        text: &str,
        generation: u64,
        asker: Asker<'_>,
        now: UnixTime,
        validity: Validity,
    ) -> Result<VerifiedToken, Reject> {
        let keys = self.keyring.keys();
        let checked = match validity {
            Validity::Live => verify(text, &keys.issuers, now, validity, asker.trace),
            Validity::ExpiredUpTo(_) => verify(text, &keys.issuers_at_refresh(), now, validity, asker.trace),
        };
        // Only what cost a signature is worth remembering; and no other verdict is final.
        if checked.as_ref().is_err_and(checked_a_signature) {
            asker.failures.take(asker.address, now);
            self.token_cache.insert_forged(text, generation);
        }
        checked
    }

    /// The token's key is not among those in force: it may be newer than they are. Nobody is told that a token is bad whose
    /// key could not be looked for.
    async fn refetch_key(
        &self,
        bearer: BearerToken<'_>,
        asker: Asker<'_>,
        now: UnixTime,
        unknown: Reject,
    ) -> Result<Arc<CachedToken>, Reject> {
        let issuer = bearer.text().ok().and_then(unverified_issuer).unwrap_or_default();
        let Some(source) = self.keyring.source_of(&issuer) else { return Err(unknown) };
        let unavailable = |why: &'static str| Err(Reject::new(Reason::KeysUnavailable, why));
        match source.ask(now).await {
            // Lately may mean a moment ago: after the first look.
            RefetchOutcome::Anew | RefetchOutcome::Lately => {}
            RefetchOutcome::NoAnswer => {
                return unavailable("the key is unknown, and its issuer has not answered in time");
            }
        }
        match self.verify_and_cache(bearer, asker, now).await {
            Err(still) if still.reason == Reason::UnknownKey && source.is_failing() => {
                unavailable("the key is unknown, and its issuer cannot be asked for it")
            }
            verdict => verdict,
        }
    }

    /// The Bearer of a refresh: as everywhere, but it may have expired up to `idle` ago, as this is when people refresh.
    ///
    /// A revoked family is not refused here: the store says so in its transaction, as `invalid_grant`, which a client
    /// that refreshes on any 401 can stop at.
    pub async fn authenticate_refresh(
        &self,
        headers: &HeaderMap,
        idle: Duration,
        asker: Asker<'_>,
        now: UnixTime,
    ) -> Result<VerifiedToken, Reject> {
        let bearer = bearer::find(headers, self.token_size)?;
        let (permit, generation, text) = self.queue_for_signature(bearer, asker, now).await?;
        let checked = self.check_signature(text, generation, asker, now, Validity::ExpiredUpTo(idle));
        end(permit, &checked).await;
        let token = checked?;
        if self.revocations.is_token_revoked(&RevocationKeys::of(&token)) {
            return Err(Reason::Revoked.into());
        }
        Ok(token)
    }
}

/// What cost no signature keeps nobody waiting: the next has its turn at once.
async fn end<T>(permit: SignaturePermit<'_>, checked: &Result<T, Reject>) {
    if checked.as_ref().err().is_none_or(checked_a_signature) {
        permit.end().await;
    }
}

/// Of the refusals, this one alone comes after a signature was checked.
fn checked_a_signature(refusal: &Reject) -> bool {
    refusal.reason == Reason::BadSignature
}

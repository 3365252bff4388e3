//! The tokens that the gateway knows, and what a new one is verified with.

use std::sync::Arc;

use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::{Flights, LookupOutcome};
use crate::auth::identity::Identity;
use crate::auth::keyring::Keyring;
use crate::auth::renewals::Renewals;
use crate::auth::revocations::Revocations;
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::token_cache::{CachedToken, TokenCache};
use crate::tokens::jwt::verify::is_still_valid;
use crate::types::reject::{Reason, Reject};

/// The keys, the cache and the revocations that all workers share.
pub struct KnownTokens {
    pub keyring: Arc<Keyring>,
    pub revocations: Arc<Revocations>,
    pub token_cache: Arc<TokenCache>,
    pub seen_generations: Arc<SeenGenerations>,
    pub renewals: Arc<Renewals>,
    /// Look-ups of credentials that run now.
    pub lookups: Flights<LookupOutcome>,
    pub identity: Identity,
}

impl KnownTokens {
    /// Looks the token up in the cache. The caller reads `key_revision` before the keys, so that a swap in between is
    /// noticed.
    pub(super) fn find(&self, bearer: BearerToken<'_>, key_revision: u64) -> Option<Arc<CachedToken>> {
        self.token_cache.find(bearer, key_revision, |token| is_still_valid(token, &self.keyring.keys().issuers))
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

    /// Keeps a token that was verified now. Open streams of its family go on.
    pub(super) fn keep(&self, known: Arc<CachedToken>, context: &AuthContext<'_>) -> Arc<CachedToken> {
        self.renew_streams(&known, context);
        self.token_cache.insert(known.clone());
        known
    }

    /// Lets open streams of the family of this token go on with it.
    pub(super) fn renew_streams(&self, known: &Arc<CachedToken>, context: &AuthContext<'_>) {
        if let Some(family) = known.token.family {
            self.renewals.record(family, known, context.clock.uptime());
        }
    }
}

//! Looks up a credential that proves nothing by itself: an API key and a handle in the store, an opaque token at its
//! issuer. The steps are the same for all kinds, and stand here once. A kind supplies what differs.
//!
//! Requests with the same credential share one look-up. What may be a guess is counted as a bad signature before the
//! look-up begins: while the store or the issuer does not respond, guesses would otherwise cost nothing.
//!
//! A JWT is not looked up. The check of its signature waits for no store and no issuer: it has a queue and no flight.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::{Flights, LookupOutcome};
use crate::auth::guess::Guess;
use crate::auth::token_cache::CachedToken;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

/// A request that presents a credential.
pub(super) struct Presented<'p> {
    pub(super) bearer: BearerToken<'p>,
    pub(super) text: &'p str,
    /// Of the keyring, read before its keys.
    pub(super) generation: u64,
    pub(super) context: &'p AuthContext<'p>,
}

impl<'p> Presented<'p> {
    pub(super) fn new(bearer: BearerToken<'p>, generation: u64, context: &'p AuthContext<'p>) -> Result<Self, Reject> {
        Ok(Presented { bearer, text: bearer.text()?, generation, context })
    }
}

/// One kind of credential.
pub(super) trait Lookup {
    /// The look-ups of this kind that run now.
    fn flights(&self) -> &Flights<LookupOutcome>;

    /// Different if another outcome is possible. See [`flight_key`].
    ///
    /// [`flight_key`]: crate::auth::flights::flight_key
    fn flight_key(&self, presented: &Presented<'_>) -> u128;

    /// Why this credential was rejected a moment ago.
    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason>;

    /// Returns true if a known credential stays good while another request looks it up, and while the store does not
    /// respond.
    fn outlives_a_lookup(&self, known: &CachedToken, presented: &Presented<'_>) -> bool;

    /// Returns what the credential stands for, or why it is bad.
    async fn look_up(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject>;
}

impl Authenticator {
    /// Looks a credential up that is not in the cache, or must be looked up again. What costs no look-up is checked
    /// first.
    pub(super) async fn look_up<K: Lookup>(
        &self,
        kind: &K,
        presented: &Presented<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let context = presented.context;
        let known = self.find(presented.bearer, presented.generation);
        let was_known = known.is_some();
        let fallback = known.filter(|known| kind.outlives_a_lookup(known, presented));
        let seat = kind.flights().join(kind.flight_key(presented));
        if let Some(fallback) = &fallback
            && !seat.is_first
        {
            return Ok(fallback.clone());
        }
        let mut outcome = seat.flight.lock().await;
        if let Some(outcome) = &*outcome {
            return outcome.clone().map_err(|(reason, detail)| Reject::new(reason, detail));
        }
        if let Some(reason) = kind.rejected_before(presented) {
            return Err(Reject::new(reason, "the same credential again"));
        }
        // The request before this one may have looked it up.
        let now = context.clock.now();
        let found = self.find(presented.bearer, presented.generation);
        if let Some(found) = found.filter(|found| !context.must_read_at(found, now)) {
            return Ok(found);
        }
        let mut guess = if was_known { Guess::none() } else { Guess::count(context)? };
        let looked_up = kind.look_up(presented, &mut guess).await.map(|known| self.keep(known, context));
        guess.refute();
        *outcome =
            Some(looked_up.as_ref().map(Arc::clone).map_err(|reject| (reject.reason, reject.detail.to_string())));
        seat.close();
        match looked_up {
            Err(down) if down.reason == Reason::StoreUnavailable => fallback.ok_or(down),
            looked_up => looked_up,
        }
    }

    fn keep(&self, known: CachedToken, context: &AuthContext<'_>) -> Arc<CachedToken> {
        let known = Arc::new(known);
        if let Some(family) = known.token.family {
            // Its streams go on.
            self.renewals.record(family, &known, context.clock.uptime());
        }
        self.token_cache.insert(known.clone());
        known
    }

    /// What a credential of the store stands for. Requests use it until `usable_until`.
    pub(super) fn known_of_store(
        &self,
        token: VerifiedToken,
        usable_until: UnixTime,
        presented: &Presented<'_>,
    ) -> CachedToken {
        let trace = presented.context.trace;
        trace.step(Step::Claims, || format!("sub {:?}, scope {:?}", token.subject, token.scope.join(" ")));
        let identity = self.identity.of(&token);
        CachedToken::new(presented.text, token, identity, presented.generation).usable_until(usable_until)
    }

    /// A credential of the store that is bad never becomes good: it is not looked up again.
    pub(super) fn forget(&self, presented: &Presented<'_>) {
        self.token_cache.remove(presented.text);
        self.token_cache.insert_bad_signature(presented.text, presented.generation);
    }
}

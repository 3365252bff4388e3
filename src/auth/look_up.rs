//! Looks up a credential that proves nothing by itself: an API key and a handle in the store, an opaque token at its
//! issuer. The steps are the same for all kinds, and stand here once. A kind supplies what differs.
//!
//! Requests with the same credential share one look-up, within one configuration: a reload makes another
//! [`KnownTokens`]. A JWT is not looked up. The check of its signature waits for no store and no issuer: it has a
//! queue and no flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::{LookupOutcome, Seat};
use crate::auth::guess::Guess;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::store_reads::too_late;
use crate::auth::token_cache::CachedToken;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

/// A request that presents a credential.
pub(super) struct Presented<'p> {
    pub(super) bearer: BearerToken<'p>,
    pub(super) text: &'p str,
    /// Of the keyring, read before its keys.
    pub(super) key_revision: u64,
    pub(super) context: &'p AuthContext<'p>,
    pub(super) known: &'p KnownTokens,
    /// When the request began to wait.
    pub(super) since: Instant,
}

impl<'p> Presented<'p> {
    pub(super) fn new(
        known: &'p KnownTokens,
        bearer: BearerToken<'p>,
        context: &'p AuthContext<'p>,
    ) -> Result<Self, Reject> {
        let key_revision = known.keyring.revision();
        Ok(Presented { bearer, text: bearer.text()?, key_revision, context, known, since: Instant::now() })
    }

    fn find(&self) -> Option<Arc<CachedToken>> {
        self.known.find(self.bearer, self.key_revision)
    }

    /// Returns what a credential of the store stands for. Requests use it until `usable_until`.
    pub(super) fn stands_for(&self, token: VerifiedToken, usable_until: UnixTime) -> CachedToken {
        let steps = self.context.steps;
        steps.report(Step::Claims, || format!("sub {:?}, scope {:?}", token.subject, token.scope.join(" ")));
        let identity = self.known.identity.of(&token);
        CachedToken::new(self.text, token, identity, self.key_revision).usable_until(usable_until)
    }

    /// Returns true if a credential of the store was found to be bad a moment ago.
    pub(super) fn is_marked_bad(&self) -> bool {
        self.known.token_cache.has_bad_signature(self.bearer, self.key_revision)
    }

    /// Remembers that a credential of the store is bad. None becomes good later, so that it is not looked up again.
    pub(super) fn mark_bad(&self) {
        self.known.token_cache.remove(self.text);
        self.known.token_cache.insert_bad_signature(self.text, self.key_revision);
    }
}

/// One kind of credential.
pub(super) trait Lookup {
    /// Returns a key that differs if another outcome is possible. See [`flight_key`].
    ///
    /// [`flight_key`]: crate::auth::flights::flight_key
    fn flight_key(&self, presented: &Presented<'_>) -> u128;

    /// Returns why this credential was rejected a moment ago.
    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason>;

    /// Returns true if a known credential stays good while another request looks it up, and while the store does not
    /// respond.
    fn outlives_a_lookup(&self, known: &CachedToken, presented: &Presented<'_>) -> bool;

    /// Begins to count a credential that is not known as a guess.
    fn guess<'g>(&self, context: &'g AuthContext<'g>) -> Result<Guess<'g>, Reject> {
        Guess::counted(context)
    }

    /// Returns how long a request waits for the look-up of another one. `None`: as long as that takes.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Returns what the credential stands for, or why it is bad.
    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject>;
}

/// Looks a credential up that is not in the cache, or must be looked up again. Checks first what costs no look-up.
pub(super) async fn look_up<K: Lookup>(kind: &K, presented: &Presented<'_>) -> Result<Arc<CachedToken>, Reject> {
    let known = presented.find();
    let was_known = known.is_some();
    let fallback = known.filter(|known| kind.outlives_a_lookup(known, presented));
    let seat = presented.known.lookups.join(kind.flight_key(presented));
    if let Some(fallback) = &fallback
        && !seat.is_first
    {
        return Ok(fallback.clone());
    }
    match share_lookup(kind, presented, &seat, was_known).await {
        Err(down) if down.reason == Reason::StoreUnavailable => fallback.ok_or(down),
        shared => shared,
    }
}

/// Waits for the look-up of another request, or makes it for all that wait.
async fn share_lookup<K: Lookup>(
    kind: &K,
    presented: &Presented<'_>,
    seat: &Seat<'_, LookupOutcome>,
    was_known: bool,
) -> Result<Arc<CachedToken>, Reject> {
    let context = presented.context;
    let turn = seat.flight.lock();
    let mut outcome = match kind.patience() {
        Some(limit) => timeout_at(presented.since + limit, turn)
            .await
            .map_err(|_| Reject::new(Reason::StoreUnavailable, too_late(limit)))?,
        None => turn.await,
    };
    // By the time of now: this request may have waited, and what the others have read may have ended.
    let now = context.clock.now();
    match &*outcome {
        Some(Ok(known)) if context.must_read_at(known, now) => {}
        Some(Ok(known)) => return Ok(known.clone()),
        Some(Err((reason, detail))) => return Err(Reject::new(*reason, detail.clone())),
        None => {}
    }
    if let Some(reason) = kind.rejected_before(presented) {
        return Err(Reject::new(reason, "the same token again"));
    }
    // A look-up that has ended before this request joined.
    if let Some(found) = presented.find().filter(|found| !context.must_read_at(found, now)) {
        return Ok(found);
    }
    let mut guess = if was_known { Guess::none(context) } else { kind.guess(context)? };
    let read = kind.read(presented, &mut guess).await;
    let read = read.map(|found| presented.known.keep(Arc::new(found), context));
    guess.refute();
    *outcome = Some(read.as_ref().map(Arc::clone).map_err(|reject| (reject.reason, reject.detail.to_string())));
    seat.close();
    read
}

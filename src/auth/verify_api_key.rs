//! Verifies an API key: it is looked up in the store.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::api_keys::check;
use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::flight_key;
use crate::auth::guess::Guess;
use crate::auth::look_up::{Lookup, Presented};
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::Family;
use crate::tokens::family::api_key::PresentedKey;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct ApiKeyLookup<'l> {
    auth: &'l Authenticator,
    key: PresentedKey,
}

impl Authenticator {
    pub(super) async fn verify_api_key(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        if !context.api_keys {
            return Err(Reject::new(Reason::ApiKeyNotAllowed, "an API key where none is accepted"));
        }
        let presented = self.presented(bearer, context)?;
        let malformed = || Reject::new(Reason::BadApiKey, "not well formed, or the checksum is wrong");
        let key = PresentedKey::parse(presented.text).ok_or_else(malformed)?;
        context.steps.report(Step::Claims, || format!("API key {}", key.id));
        self.look_up(&ApiKeyLookup { auth: self, key }, &presented).await
    }

    /// Records the use of an API key by a request that is allowed.
    pub fn note_use(&self, caller: &Caller, now: UnixTime) {
        let known = caller.cached();
        if known.is_api_key {
            self.api_keys.note_use(known, now);
        }
    }
}

impl Lookup for ApiKeyLookup<'_> {
    fn flight_key(&self, presented: &Presented<'_>) -> u128 {
        flight_key("API key", presented.text)
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        let is_bad = self.auth.token_cache.has_bad_signature(presented.bearer, presented.key_revision);
        is_bad.then_some(Reason::BadApiKey)
    }

    fn outlives_a_lookup(&self, known: &CachedToken, presented: &Presented<'_>) -> bool {
        presented.context.now < known.token.expires
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.auth.api_keys.timeout())
    }

    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject> {
        let found = self.auth.api_keys.read(self.key.id, presented.since).await?;
        match check(found, &self.key, presented.context.now) {
            Ok(family) => Ok(self.stand_for(&family, presented)),
            Err(bad) => {
                if bad.is_guess() {
                    guess.confirm();
                }
                self.auth.mark_bad(presented);
                Err(bad.reject())
            }
        }
    }
}

impl ApiKeyLookup<'_> {
    fn stand_for(&self, family: &Family, presented: &Presented<'_>) -> CachedToken {
        let now = presented.context.now;
        let keys = self.auth.keyring.keys();
        let token = self.auth.api_keys.stand_for(family, &keys.own().trusted.policy, now);
        let known = self.auth.known_of_store(token, self.auth.api_keys.usable_until(now), presented);
        // The first use is recorded at once.
        let is_used = family.last_used_at > family.created_at;
        known.last_used_at(if is_used { family.last_used_at } else { UnixTime::default() })
    }
}

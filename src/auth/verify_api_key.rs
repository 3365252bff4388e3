//! Verifies an API key: it is looked up in the store.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::api_keys::{ApiKeys, check};
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::flight_key;
use crate::auth::guess::Guess;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::look_up::{Lookup, Presented, look_up};
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::Family;
use crate::tokens::family::api_key::PresentedKey;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct ApiKeyLookup<'l> {
    api_keys: &'l ApiKeys,
    key: PresentedKey,
}

pub(super) async fn verify_api_key(
    known: &KnownTokens,
    api_keys: &ApiKeys,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    if !context.api_keys {
        return Err(Reject::new(Reason::ApiKeyNotAllowed, "an API key where none is accepted"));
    }
    let presented = Presented::new(known, bearer, context)?;
    let malformed = || Reject::new(Reason::BadApiKey, "not well formed, or the checksum is wrong");
    let key = PresentedKey::parse(presented.text).ok_or_else(malformed)?;
    context.steps.report(Step::Claims, || format!("API key {}", key.id));
    look_up(&ApiKeyLookup { api_keys, key }, &presented).await
}

impl Lookup for ApiKeyLookup<'_> {
    fn flight_key(&self, presented: &Presented<'_>) -> u128 {
        flight_key("API key", presented.text)
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        presented.is_marked_bad().then_some(Reason::BadApiKey)
    }

    fn outlives_a_lookup(&self, known: &CachedToken, presented: &Presented<'_>) -> bool {
        presented.context.now < known.token.expires
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.api_keys.timeout())
    }

    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject> {
        let found = self.api_keys.read(self.key.id, presented.since).await?;
        match check(found, &self.key, presented.context.now) {
            Ok(family) => Ok(self.stand_for(&family, presented)),
            Err(bad) => {
                if bad.is_guess() {
                    guess.confirm();
                }
                presented.mark_bad();
                Err(bad.reject())
            }
        }
    }
}

impl ApiKeyLookup<'_> {
    fn stand_for(&self, family: &Family, presented: &Presented<'_>) -> CachedToken {
        let now = presented.context.now;
        let keys = presented.known.keyring.keys();
        let token = self.api_keys.stand_for(family, &keys.own().trusted.policy, now);
        let known = presented.stands_for(token, self.api_keys.usable_until(now));
        // The first use is recorded at once.
        let is_used = family.last_used_at > family.created_at;
        known.last_used_at(if is_used { family.last_used_at } else { UnixTime::default() })
    }
}

//! Verifies an API key: the part of authentication for which no signature is checked.

use std::sync::Arc;

use crate::auth::api_keys::check;
use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::api_key::PresentedKey;
use crate::tokens::jwt::VerifiedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

impl Authenticator {
    /// Looks an API key up in the store. What costs no look-up is checked first. Guesses are counted as bad signatures.
    /// A bad key that is sent again is not looked up again: no key becomes good later.
    pub(super) async fn verify_api_key(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        if !context.api_keys {
            return Err(Reject::new(Reason::ApiKeyNotAllowed, "an API key where none is accepted"));
        }
        let text = bearer.text()?;
        let malformed = || Reject::new(Reason::BadApiKey, "not well formed, or the checksum is wrong");
        let presented = PresentedKey::parse(text).ok_or_else(malformed)?;
        context.trace.step(Step::Claims, || format!("API key {}", presented.id));
        let generation = self.keyring.generation();
        let known = self.find(bearer, generation).filter(|known| context.now < known.token.expires);
        // A key that is known waits for no other request, and does not suffer from guesses of its address.
        let _turn = match (&known, self.api_keys.try_turn(presented.id)) {
            (_, Some(turn)) => turn,
            (Some(known), None) => return Ok(known.clone()),
            (None, None) => {
                self.check_before_look_up(bearer, generation, context)?;
                self.api_keys.turn(presented.id).await
            }
        };
        // The requests before this one may have looked it up, or may have used up what this address can guess.
        if let Some(known) = self.find(bearer, generation).filter(|known| !known.is_past_key(context.now, true)) {
            return Ok(known);
        }
        if known.is_none() {
            self.check_before_look_up(bearer, generation, context)?;
        }
        let found = match self.api_keys.find(presented.id).await {
            Ok(found) => found,
            Err(down) => return known.ok_or(down),
        };
        match check(found, &presented, context.now) {
            Ok(family) => {
                let keys = self.keyring.keys();
                let token = self.api_keys.stand_for(&family, &keys.own().trusted.policy, context.now);
                Ok(self.cache_api_key(text, token, generation, context))
            }
            Err(bad) => {
                if bad.is_guess() {
                    context.payer.count(context.clock.uptime());
                }
                self.token_cache.remove(text);
                self.token_cache.insert_bad_signature(text, generation);
                Err(bad.reject())
            }
        }
    }

    fn check_before_look_up(
        &self,
        bearer: BearerToken<'_>,
        generation: u64,
        context: &AuthContext<'_>,
    ) -> Result<(), Reject> {
        if self.token_cache.has_bad_signature(bearer, generation) {
            return Err(Reject::new(Reason::BadApiKey, "the same bad key again"));
        }
        context.payer.check(context.clock.uptime())
    }

    fn cache_api_key(
        &self,
        text: &str,
        token: VerifiedToken,
        generation: u64,
        context: &AuthContext<'_>,
    ) -> Arc<CachedToken> {
        context.trace.step(Step::Claims, || format!("sub {:?}, scope {:?}", token.subject, token.scope.join(" ")));
        let identity = self.identity.of(&token);
        let cached = CachedToken::new(text, token, identity, generation);
        let cached = Arc::new(cached.usable_until(self.api_keys.usable_until(context.now)));
        if let Some(id) = cached.token.family {
            // Its streams go on.
            self.renewals.record(id, &cached, context.clock.uptime());
        }
        self.token_cache.insert(cached.clone());
        cached
    }
}

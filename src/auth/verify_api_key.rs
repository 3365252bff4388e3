//! Verifies an API key: the part of authentication for which no signature is checked.

use std::sync::Arc;

use crate::auth::api_keys::check;
use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::Family;
use crate::tokens::family::api_key::PresentedKey;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

/// What a request for a key has found.
enum Found {
    /// What an earlier request has read.
    Known(Arc<CachedToken>),
    Read(Option<Box<Family>>),
}

impl Authenticator {
    /// Looks an API key up in the store. What costs no look-up is checked first. Guesses are counted as bad signatures,
    /// before anything waits for the store: while it does not respond, they would otherwise cost nothing. A bad key
    /// that is sent again is not looked up again: no key becomes good later.
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
        let lookup = self.api_keys.lookup(text);
        let mut is_counted = false;
        // A key that is known waits for no other request, and does not suffer from guesses of its address. Of several
        // requests with an unknown one, only the first counts.
        match &known {
            Some(known) if !lookup.is_first => return Ok(known.clone()),
            None if lookup.is_first => {
                self.count_guess(bearer, generation, context)?;
                is_counted = true;
            }
            _ => {}
        }
        let reading = async {
            let _turn = lookup.turn().await;
            if !lookup.is_first {
                if let Some(known) = self.find(bearer, generation).filter(|known| !known.is_past_key(context.now, true))
                {
                    return Ok(Found::Known(known));
                }
                // The look-up of the request before has failed, or that request has ended.
                self.count_guess(bearer, generation, context)?;
                is_counted = true;
            }
            self.api_keys.find(presented.id).await.map(|family| Found::Read(family.map(Box::new)))
        };
        let checked = match self.api_keys.in_time(reading).await {
            Ok(Found::Known(known)) => return Ok(known),
            Ok(Found::Read(family)) => check(family.map(|family| *family), &presented, context.now),
            Err(reject) => {
                // The client is not at fault for a store that fails.
                if is_counted && reject.reason == Reason::StoreUnavailable {
                    context.payer.give_back();
                }
                return known.ok_or(reject);
            }
        };
        let is_guess = checked.as_ref().is_err_and(|bad| bad.is_guess());
        match (is_guess, is_counted) {
            (true, false) => context.payer.count(context.clock.uptime()),
            (false, true) => context.payer.give_back(),
            _ => {}
        }
        match checked {
            Ok(family) => Ok(self.cache_api_key(text, &family, generation, context)),
            Err(bad) => {
                self.token_cache.remove(text);
                self.token_cache.insert_bad_signature(text, generation);
                Err(bad.reject())
            }
        }
    }

    /// Records the use of an API key by a request that is allowed.
    pub fn note_use(&self, caller: &Caller, now: UnixTime) {
        let known = caller.cached();
        if known.is_api_key {
            self.api_keys.note_use(known, now);
        }
    }

    /// Counts a key that may be a guess, unless it is known as one, or its address has no guess left.
    fn count_guess(&self, bearer: BearerToken<'_>, generation: u64, context: &AuthContext<'_>) -> Result<(), Reject> {
        self.check_before_work(bearer, generation, Reason::BadApiKey, context)?;
        context.payer.count(context.clock.uptime());
        Ok(())
    }

    fn cache_api_key(
        &self,
        text: &str,
        family: &Family,
        generation: u64,
        context: &AuthContext<'_>,
    ) -> Arc<CachedToken> {
        let keys = self.keyring.keys();
        let token = self.api_keys.stand_for(family, &keys.own().trusted.policy, context.now);
        context.trace.step(Step::Claims, || format!("sub {:?}, scope {:?}", token.subject, token.scope.join(" ")));
        let identity = self.identity.of(&token);
        // The first use is recorded at once.
        let is_used = family.last_used_at > family.created_at;
        let last_use = if is_used { family.last_used_at } else { UnixTime::default() };
        let cached = CachedToken::new(text, token, identity, generation).last_used_at(last_use);
        let cached = Arc::new(cached.usable_until(self.api_keys.usable_until(context.now)));
        if let Some(id) = cached.token.family {
            // Its streams go on.
            self.renewals.record(id, &cached, context.clock.uptime());
        }
        self.token_cache.insert(cached.clone());
        cached
    }
}

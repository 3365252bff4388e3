//! Verifies the handle of a login: the part of authentication for which no signature is checked, as for an API key.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::handle::PresentedHandle;
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

impl Authenticator {
    /// Looks a handle up in the store. What costs no look-up is checked first. Guesses are counted as bad signatures. A
    /// bad handle that is sent again is not looked up again: none becomes good later.
    pub(super) async fn verify_handle(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let Some(provider) = context.provider else {
            return Err(Reject::new(Reason::BadSession, "the handle of a login where none is accepted"));
        };
        let text = bearer.text()?;
        let malformed = || Reject::new(Reason::BadSession, "not well formed, or the checksum is wrong");
        let presented = PresentedHandle::parse(text).ok_or_else(malformed)?;
        context.trace.step(Step::Claims, || format!("session {}", presented.id));
        let generation = self.keyring.generation();
        let is_of_provider =
            |known: &Arc<CachedToken>| known.provider.as_ref().is_some_and(|at| *at.provider == *provider);
        let is_usable = |known: &Arc<CachedToken>| is_of_provider(known) && context.now < known.token.expires;
        let known = self.find(bearer, generation).filter(is_usable);
        let lookup = self.handles.lookup(text);
        // A handle that is known waits for no other request, and does not suffer from guesses of its address.
        match &known {
            Some(known) if !lookup.is_first => return Ok(known.clone()),
            Some(_) => {}
            None => self.check_before_work(bearer, generation, Reason::BadSession, context)?,
        }
        let _turn = lookup.turn().await;
        if !lookup.is_first {
            // The requests before this one may have looked it up, or may have used up what this address can guess.
            let is_current = |known: &Arc<CachedToken>| !known.is_past_handle(context.now, context.provider);
            if let Some(known) = self.find(bearer, generation).filter(is_current) {
                return Ok(known);
            }
            self.check_before_work(bearer, generation, Reason::BadSession, context)?;
        }
        match self.handles.read(&presented, provider, context.now).await {
            Ok(Ok(login)) => {
                let keys = self.keyring.keys();
                let token = self.handles.stand_for(&login, &keys.own().trusted.policy, context.now);
                Ok(self.cache_handle(text, token, login.usable_until, generation, context))
            }
            Ok(Err(bad)) => {
                if bad.is_guess() {
                    context.payer.count(context.clock.uptime());
                }
                if !bad.is_of_other_route() {
                    self.token_cache.remove(text);
                    self.token_cache.insert_bad_signature(text, generation);
                }
                Err(bad.reject())
            }
            // The provider is not asked while the login is good without it, so that a known one does not help here.
            Err(down) if down.reason == Reason::ProviderUnavailable => {
                // Nor does it help the requests that come meanwhile.
                self.token_cache.remove(text);
                Err(down)
            }
            Err(down) => known.ok_or(down),
        }
    }

    fn cache_handle(
        &self,
        text: &str,
        token: VerifiedToken,
        usable_until: UnixTime,
        generation: u64,
        context: &AuthContext<'_>,
    ) -> Arc<CachedToken> {
        context.trace.step(Step::Claims, || format!("sub {:?}, scope {:?}", token.subject, token.scope.join(" ")));
        let identity = self.identity.of(&token);
        let cached = Arc::new(CachedToken::new(text, token, identity, generation).usable_until(usable_until));
        if let Some(id) = cached.token.family {
            // Its streams go on.
            self.renewals.record(id, &cached, context.clock.uptime());
        }
        self.token_cache.insert(cached.clone());
        cached
    }
}

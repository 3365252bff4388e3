//! Verifies an opaque token: the part of authentication for which its issuer is asked.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::introspection::Introspector;
use crate::auth::token_cache::CachedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::Step;

impl Authenticator {
    /// Asks about a token that is not known, or was known for too long. What costs no question is checked first.
    /// Guesses are counted as bad signatures.
    pub(super) async fn verify_opaque(
        &self,
        bearer: BearerToken<'_>,
        asked: &Introspector,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let text = bearer.text()?;
        let (key, generation) = (asked.token_key(text), self.keyring.generation());
        context.trace.step(Step::Issuer, || asked.policy.issuer.to_string());
        let known = self.find(bearer, generation).is_some();
        let seat = self.introspection.join(key);
        let mut outcome = seat.flight.lock().await;
        if let Some(outcome) = &*outcome {
            return outcome.clone().map_err(|(reason, detail)| Reject::new(reason, detail));
        }
        // The request before this one may have asked.
        if let Some(reason) = self.introspection.rejected(key, context.clock) {
            return Err(Reject::new(reason, "the same token again"));
        }
        let now = context.clock.now();
        if let Some(known) = self.find(bearer, generation).filter(|known| !known.is_past_key(now, true)) {
            return Ok(known);
        }
        // A token that was good a moment ago is no guess.
        if !known {
            context.payer.reserve(context.clock.uptime())?;
        }
        let judged = self.ask_about(text, key, asked, generation, context).await;
        // A request that its client gives up keeps what it has reserved.
        if !known && judged.as_ref().err().is_none_or(|reject| reject.reason != Reason::TokenInactive) {
            context.payer.give_back();
        }
        *outcome = Some(judged.as_ref().map(Arc::clone).map_err(|reject| (reject.reason, reject.detail.to_string())));
        seat.close();
        judged
    }

    async fn ask_about(
        &self,
        text: &str,
        key: u128,
        asked: &Introspector,
        generation: u64,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let answer = asked.ask(text, &self.keyring, context.clock, &self.introspection.counts).await;
        let introspected = answer.inspect_err(|reject| {
            self.introspection.bad(key, reject, context.clock);
            if reject.reason != Reason::IntrospectionUnavailable {
                self.token_cache.remove(text);
            }
        })?;
        let token = introspected.token.clone();
        context.trace.step(Step::Introspection, || {
            format!("active: sub {:?}, scope {:?}, until {}", token.subject, token.scope.join(" "), token.expires)
        });
        let text = Arc::from(text);
        let lease = self.introspection.good(asked, key, &text, &introspected);
        let identity = self.identity.of(&token);
        let cached = CachedToken::of_answer(text, token, identity, generation, lease);
        let cached = Arc::new(cached.usable_until(introspected.asked_at + asked.settings.cache));
        self.token_cache.insert(cached.clone());
        Ok(cached)
    }
}

//! Verifies an opaque token: its issuer is asked about it.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::guess::Guess;
use crate::auth::introspection::Introspector;
use crate::auth::look_up::{Lookup, Presented};
use crate::auth::token_cache::CachedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct OpaqueLookup<'l> {
    auth: &'l Authenticator,
    issuer: &'l Introspector,
    key: u128,
}

impl Authenticator {
    pub(super) async fn verify_opaque(
        &self,
        bearer: BearerToken<'_>,
        issuer: &Introspector,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let presented = self.presented(bearer, context)?;
        context.steps.report(Step::Issuer, || issuer.policy.issuer.to_string());
        let key = issuer.token_key(presented.text);
        self.look_up(&OpaqueLookup { auth: self, issuer, key }, &presented).await
    }
}

impl Lookup for OpaqueLookup<'_> {
    fn flight_key(&self, _presented: &Presented<'_>) -> u128 {
        self.key
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        self.auth.introspection.rejected(self.key, presented.context.clock)
    }

    /// Returns false: an answer that is too old is not used.
    fn outlives_a_lookup(&self, _known: &CachedToken, _presented: &Presented<'_>) -> bool {
        false
    }

    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject> {
        let introspection = &self.auth.introspection;
        let clock = presented.context.clock;
        let answer = self.issuer.ask(presented.text, &self.auth.keyring, clock, &introspection.counts).await;
        let introspected = answer.inspect_err(|reject| {
            introspection.bad(self.key, reject, clock);
            if reject.reason == Reason::TokenInactive {
                guess.confirm();
            }
            if reject.reason != Reason::IntrospectionUnavailable {
                self.auth.token_cache.remove(presented.text);
            }
        })?;
        let token = introspected.token.clone();
        presented.context.steps.report(Step::Introspection, || {
            format!("active: sub {:?}, scope {:?}, until {}", token.subject, token.scope.join(" "), token.expires)
        });
        let text = Arc::from(presented.text);
        let shared = introspection.good(self.issuer, self.key, &text, &introspected);
        let identity = self.auth.identity.of(&token);
        let known = CachedToken::of_answer(text, token, identity, presented.key_revision, shared);
        Ok(known.usable_until(introspected.asked_at + self.issuer.settings.cache))
    }
}

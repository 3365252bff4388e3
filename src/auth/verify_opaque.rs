//! Verifies an opaque token: its issuer is asked about it.

use std::sync::Arc;

use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::guess::Guess;
use crate::auth::introspection::{Introspection, Introspector};
use crate::auth::known_tokens::KnownTokens;
use crate::auth::look_up::{Lookup, Presented, look_up};
use crate::auth::token_cache::CachedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct OpaqueLookup<'l> {
    introspection: &'l Introspection,
    issuer: &'l Introspector,
    key: u128,
}

pub(super) async fn verify_opaque(
    known: &KnownTokens,
    introspection: &Introspection,
    issuer: &Introspector,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let presented = Presented::new(known, bearer, context)?;
    context.steps.report(Step::Issuer, || issuer.policy.issuer.to_string());
    let key = issuer.token_key(presented.text);
    look_up(&OpaqueLookup { introspection, issuer, key }, &presented).await
}

impl Lookup for OpaqueLookup<'_> {
    fn flight_key(&self, _presented: &Presented<'_>) -> u128 {
        self.key
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        self.introspection.rejected(self.key, presented.context.clock)
    }

    /// Returns false: an answer that is too old is not used.
    fn outlives_a_lookup(&self, _known: &CachedToken, _presented: &Presented<'_>) -> bool {
        false
    }

    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject> {
        let introspection = self.introspection;
        let clock = presented.context.clock;
        let answer = self.issuer.ask(presented.text, &presented.known.keyring, clock, &introspection.counts).await;
        let introspected = answer.inspect_err(|reject| {
            introspection.bad(self.key, reject, clock);
            if reject.reason == Reason::TokenInactive {
                guess.confirm();
            }
            if reject.reason != Reason::IntrospectionUnavailable {
                presented.known.token_cache.remove(presented.text);
            }
        })?;
        let token = introspected.token.clone();
        presented.context.steps.report(Step::Introspection, || {
            format!("active: sub {:?}, scope {:?}, until {}", token.subject, token.scope.join(" "), token.expires)
        });
        let text = Arc::from(presented.text);
        let shared = introspection.good(self.issuer, self.key, &text, &introspected);
        let identity = presented.known.identity.of(&token);
        let known = CachedToken::of_answer(text, token, identity, presented.key_revision, shared);
        Ok(known.usable_until(introspected.asked_at + self.issuer.settings.cache))
    }
}

//! Verifies the handle of a login: the login is looked up in the store, and refreshed at its provider if that is due.

use std::sync::Arc;

use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::flight_key;
use crate::auth::guess::Guess;
use crate::auth::handles::Handles;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::look_up::{Lookup, Presented, look_up};
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::handle::PresentedHandle;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct HandleLookup<'l> {
    handles: &'l Handles,
    handle: PresentedHandle,
    /// The one that the route accepts.
    provider: &'l str,
}

pub(super) async fn verify_handle(
    known: &KnownTokens,
    handles: &Handles,
    bearer: BearerToken<'_>,
    context: &AuthContext<'_>,
) -> Result<Arc<CachedToken>, Reject> {
    let Some(provider) = context.provider else {
        return Err(Reject::new(Reason::BadSession, "the handle of a login where none is accepted"));
    };
    let presented = Presented::new(known, bearer, context)?;
    let malformed = || Reject::new(Reason::BadSession, "not well formed, or the checksum is wrong");
    let handle = PresentedHandle::parse(presented.text).ok_or_else(malformed)?;
    context.steps.report(Step::Claims, || format!("session {}", handle.id));
    look_up(&HandleLookup { handles, handle, provider }, &presented).await
}

impl Lookup for HandleLookup<'_> {
    fn flight_key(&self, presented: &Presented<'_>) -> u128 {
        flight_key(&format!("session at {}", self.provider), presented.text)
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        presented.is_marked_bad().then_some(Reason::BadSession)
    }

    fn outlives_a_lookup(&self, known: &CachedToken, presented: &Presented<'_>) -> bool {
        let is_of_provider = known.provider.as_ref().is_some_and(|at| *at.provider == *self.provider);
        is_of_provider && presented.context.now < known.token.expires
    }

    /// Counts none in flight: many users of one address may wait for the store or for their provider.
    fn guess<'g>(&self, context: &'g AuthContext<'g>) -> Result<Guess<'g>, Reject> {
        Guess::open(context)
    }

    async fn read(&self, presented: &Presented<'_>, guess: &mut Guess<'_>) -> Result<CachedToken, Reject> {
        let now = presented.context.now;
        match self.handles.read(&self.handle, self.provider, now).await {
            Ok(Ok(login)) => {
                let keys = presented.known.keyring.keys();
                let token = self.handles.stand_for(&login, &keys.own().trusted.policy, now);
                Ok(presented.stands_for(token, login.usable_until))
            }
            Ok(Err(bad)) => {
                if bad.is_guess() {
                    guess.confirm();
                }
                if !bad.is_of_other_route() {
                    presented.mark_bad();
                }
                Err(bad.reject())
            }
            Err(down) => {
                // The login is worth nothing without its provider, also to requests that come while it is asked.
                if down.reason == Reason::ProviderUnavailable {
                    presented.known.token_cache.remove(presented.text);
                }
                Err(down)
            }
        }
    }
}

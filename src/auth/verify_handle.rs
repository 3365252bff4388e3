//! Verifies the handle of a login: the login is looked up in the store, and refreshed at its provider if that is due.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::flights::flight_key;
use crate::auth::guess::Guess;
use crate::auth::look_up::{Lookup, Presented};
use crate::auth::token_cache::CachedToken;
use crate::tokens::family::handle::PresentedHandle;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

struct HandleLookup<'l> {
    auth: &'l Authenticator,
    handle: PresentedHandle,
    /// The one that the route accepts.
    provider: &'l str,
}

impl Authenticator {
    pub(super) async fn verify_handle(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Arc<CachedToken>, Reject> {
        let Some(provider) = context.provider else {
            return Err(Reject::new(Reason::BadSession, "the handle of a login where none is accepted"));
        };
        let presented = self.presented(bearer, context)?;
        let malformed = || Reject::new(Reason::BadSession, "not well formed, or the checksum is wrong");
        let handle = PresentedHandle::parse(presented.text).ok_or_else(malformed)?;
        context.steps.report(Step::Claims, || format!("session {}", handle.id));
        self.look_up(&HandleLookup { auth: self, handle, provider }, &presented).await
    }
}

impl Lookup for HandleLookup<'_> {
    fn flight_key(&self, presented: &Presented<'_>) -> u128 {
        flight_key(&format!("session at {}", self.provider), presented.text)
    }

    fn rejected_before(&self, presented: &Presented<'_>) -> Option<Reason> {
        let is_bad = self.auth.token_cache.has_bad_signature(presented.bearer, presented.key_revision);
        is_bad.then_some(Reason::BadSession)
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
        let handles = &self.auth.handles;
        let now = presented.context.now;
        match handles.read(&self.handle, self.provider, now).await {
            Ok(Ok(login)) => {
                let keys = self.auth.keyring.keys();
                let token = handles.stand_for(&login, &keys.own().trusted.policy, now);
                Ok(self.auth.known_of_store(token, login.usable_until, presented))
            }
            Ok(Err(bad)) => {
                if bad.is_guess() {
                    guess.confirm();
                }
                if !bad.is_of_other_route() {
                    self.auth.mark_bad(presented);
                }
                Err(bad.reject())
            }
            Err(down) => {
                // The login is worth nothing without its provider, also to requests that come while it is asked.
                if down.reason == Reason::ProviderUnavailable {
                    self.auth.token_cache.remove(presented.text);
                }
                Err(down)
            }
        }
    }
}

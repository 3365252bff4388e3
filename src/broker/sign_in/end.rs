//! The sign-out: here first, then at the provider.
//!
//! The store keeps the login until the provider has revoked its tokens, so that neither a crash nor a provider that is
//! down leaves a refresh token alive. The end of the session at the provider does not end it (OpenID Connect
//! Back-Channel Logout section 2.7).

use super::provider::{NotRevoked, SignInProvider, SignInProviders, UnusedToken};
use crate::auth::provider::Optional;
use crate::broker::service::Broker;
use crate::protocols::http::parameters;
use crate::store::{ProviderLogin, RevokedBy};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::handle::PresentedHandle;
use crate::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use crate::types::clock::Clock;
use crate::types::reject::Reject;

/// Logins for one round of revocations.
const AT_ONCE: usize = 32;

/// A family that has ended here, with its login.
pub struct SignedOut {
    pub family: Family,
    pub login: ProviderLogin,
    /// For the sign-out at the provider.
    pub id_token: Option<String>,
}

impl Broker {
    /// The login of a genuine handle, live or ended.
    pub async fn login_of(&self, presented: &PresentedHandle) -> Result<Option<(Family, ProviderLogin)>, Reject> {
        let found = self.with_timeout(self.store.provider_login(presented.id)).await?;
        Ok(found.filter(|(family, _)| presented.is_genuine(family, &self.roots)))
    }

    /// Ends the family of a handle. It is durable, and enforced here, when this returns. `None`: the handle is none.
    pub async fn sign_out(
        &self,
        presented: &PresentedHandle,
        context: EventContext,
    ) -> Result<Option<SignedOut>, Reject> {
        let Some((family, login)) = self.login_of(presented).await? else { return Ok(None) };
        let by = RevokedBy::Owner(family.subject.clone());
        self.with_timeout(self.store.revoke_family(family.id, by, context)).await?;
        let id_token = self.tokens_of(&family, &login).and_then(|tokens| tokens.id_token);
        Ok(Some(SignedOut { family, login, id_token }))
    }

    /// The provider's tokens of a login. `None` if they were sealed for another place, or their root secret is missing.
    pub(super) fn tokens_of(&self, family: &Family, login: &ProviderLogin) -> Option<ProviderTokens> {
        let issuer = &family.origin.as_ref()?.issuer;
        let place = Place { family: family.id, issuer, version: login.version };
        ProviderTokens::open(login.root, &login.sealed, place, &self.roots)
    }

    /// Revokes the tokens of ended logins at one provider (RFC 7009), as far as it responds.
    pub async fn tell_provider(&self, with: &SignInProvider, clock: &dyn Clock) {
        // A login that cannot be told is returned a minute later, so that this ends.
        while self.tell_some(with, clock).await {}
    }

    /// Returns true if there may be more that the provider can be told now.
    async fn tell_some(&self, with: &SignInProvider, clock: &dyn Clock) -> bool {
        let provider = &with.provider.name;
        let ended = self.store.logins_to_revoke(provider.to_string(), clock.now(), AT_ONCE);
        let ended = match self.with_timeout(ended).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::warn!(%error, "cannot read which logins have ended");
                return false;
            }
        };
        let may_have_more = ended.len() >= AT_ONCE;
        for (id, login) in ended {
            let place = Place { family: id, issuer: &with.provider.issuer, version: login.version };
            let Some(tokens) = ProviderTokens::open(login.root, &login.sealed, place, &self.roots) else {
                // The next configuration, or a restored root secret, may open it.
                with.cannot_open();
                continue;
            };
            if let Some(refresh_token) = tokens.refresh_token
                && let Err(NotRevoked { problem, is_down }) = tell(with, refresh_token, clock).await
            {
                tracing::warn!(session = %id, provider = &**provider, problem, "cannot revoke tokens at a provider");
                if is_down {
                    return false;
                }
                continue;
            }
            if let Err(error) = self.with_timeout(self.store.forget_login(id, login.version)).await {
                tracing::warn!(%error, "cannot forget a login that has ended");
            }
        }
        may_have_more
    }
}

async fn tell(with: &SignInProvider, refresh_token: String, clock: &dyn Clock) -> Result<(), NotRevoked> {
    let is_down = true;
    let metadata = with.metadata().map_err(|unknown| NotRevoked { problem: unknown.detail.into_owned(), is_down })?;
    match metadata.revocation {
        Optional::Absent => Ok(()),
        Optional::Unusable(problem) => Err(NotRevoked { problem, is_down }),
        Optional::Usable(endpoint) => with.revoke(&endpoint, &UnusedToken::refresh(refresh_token), clock.now()).await,
    }
}

impl SignedOut {
    /// Where the browser signs out at the provider (OpenID Connect RP-Initiated Logout section 2). `None` if that is
    /// not possible there.
    pub fn url(&self, providers: &SignInProviders, back: &str) -> Option<String> {
        let with = providers.of(&self.family, &self.login)?;
        let endpoint = with.metadata().ok()?.end_session?.text();
        let hint = self.id_token.as_deref().map(|token| ("id_token_hint", token));
        let always = [("client_id", &*with.provider.client.client_id), ("post_logout_redirect_uri", back)];
        let query = parameters::write(hint.into_iter().chain(always));
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Some(format!("{endpoint}{separator}{query}"))
    }
}

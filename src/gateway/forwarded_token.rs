//! The token that the upstream gets: that of the client, none, or another one in its place (`route.token`).

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderValue, Request, header};

use crate::auth::bearer;
use crate::auth::keyring::Keyring;
use crate::auth::proofs::DPOP;
use crate::auth::token_cache::CachedToken;
use crate::auth::token_exchange::TokenExchange;
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::route::TokenForwarding;
use crate::protocols::http::body::Body;
use crate::tokens::jwt::replacement::ReplacementSettings;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Makes the tokens that upstreams get in place of those of clients.
pub struct UpstreamTokens {
    pub keyring: Arc<Keyring>,
    pub replacement: ReplacementSettings,
    /// `[[token_exchange]]`
    pub exchanges: Vec<TokenExchange>,
}

impl UpstreamTokens {
    /// Sets what the upstream gets of the token. Returns its `Authorization`, if there is one.
    pub(super) async fn authorization<'q>(
        &self,
        request: &'q mut Request<Body>,
        permit: &Permit,
        context: &RequestContext<'_>,
    ) -> Result<Option<&'q HeaderValue>, Reject> {
        let token = self.token_for(permit, context).await?;
        set_token(request, permit, token)?;
        Ok(request.headers().get(header::AUTHORIZATION))
    }

    /// The `Authorization` that the upstream gets in place of the client's. `None` if the route does not replace it, or
    /// there is no caller: then the upstream gets no token.
    pub(super) async fn token_for(
        &self,
        permit: &Permit,
        context: &RequestContext<'_>,
    ) -> Result<Option<HeaderValue>, Reject> {
        let Some(caller) = permit.caller() else { return Ok(None) };
        match &permit.route().token_forwarding {
            TokenForwarding::Pass | TokenForwarding::Drop => Ok(None),
            TokenForwarding::Replace(audience) => self.replaced(caller.cached(), audience, context.now).map(Some),
            TokenForwarding::Exchange(number) => {
                let exchange = &self.exchanges[*number];
                match exchange.known(caller.cached(), context.now) {
                    Some(known) => Ok(Some(known)),
                    // Boxed, because the future of every request is as large as its largest step.
                    None => Box::pin(self.exchanged(exchange, caller.cached(), context)).await.map(Some),
                }
            }
        }
    }

    /// A token of this gateway for this audience.
    fn replaced(&self, cached: &CachedToken, audience: &[String], now: UnixTime) -> Result<HeaderValue, Reject> {
        let keys = self.keyring.keys();
        cached.replacements.authorization(&cached.token, audience, &self.replacement, &keys.own().signing, now)
    }

    /// A token of another server.
    async fn exchanged(
        &self,
        exchange: &TokenExchange,
        cached: &CachedToken,
        context: &RequestContext<'_>,
    ) -> Result<HeaderValue, Reject> {
        let subject = self.subject_token(exchange, cached, context.now)?;
        exchange.authorization(cached, &subject, context.clock).await
    }

    /// The token that the other server exchanges: that of the caller, or one of this gateway that replaces it.
    fn subject_token<'t>(
        &self,
        exchange: &TokenExchange,
        cached: &'t CachedToken,
        now: UnixTime,
    ) -> Result<Cow<'t, str>, Reject> {
        let audience = &exchange.settings.subject_audience;
        if audience.is_empty() {
            // An API key and the like is a secret of this gateway, which no other server may see.
            return if cached.token.is_signed() {
                Ok(Cow::Borrowed(&*cached.text))
            } else {
                Err(Reject::new(Reason::TokenExchangeFailed, "the caller has no JWT: set subject_audience"))
            };
        }
        let replaced = self.replaced(cached, audience, now)?;
        let token = replaced.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| Reject::new(Reason::Internal, "a replaced token is no Bearer"))?;
        Ok(Cow::Owned(token.to_owned()))
    }
}

/// Returns as [`crate::auth::bearer::TokenLocations::rewrite_for_upstream`]. `token`: of [`UpstreamTokens::token_for`].
pub(super) fn set_token(
    request: &mut Request<Body>,
    permit: &Permit,
    token: Option<HeaderValue>,
) -> Result<bool, Reject> {
    let route = permit.route();
    let removes = route.token_forwarding != TokenForwarding::Pass;
    let token_was_subprotocol = route.places.rewrite_for_upstream(request, removes)?;
    if let Some(token) = token {
        request.headers_mut().insert(header::AUTHORIZATION, token);
    }
    if permit.caller().is_some_and(|caller| caller.proof().is_some()) {
        without_proof(request)?;
    }
    Ok(token_was_subprotocol)
}

/// The gateway has used the proof. A backend gets neither the proof, also with `forwarding.keep`, nor the scheme that
/// promises one.
fn without_proof(request: &mut Request<Body>) -> Result<(), Reject> {
    let headers = request.headers_mut();
    headers.remove(&DPOP);
    let Some(value) = headers.get(header::AUTHORIZATION).filter(|value| bearer::is_dpop(value)) else { return Ok(()) };
    let token = value.to_str().ok().and_then(|value| value.get("DPoP ".len()..)).unwrap_or_default();
    let changed = HeaderValue::from_str(&format!("Bearer {token}"));
    headers.insert(header::AUTHORIZATION, changed.map_err(|_| Reason::Internal)?);
    Ok(())
}

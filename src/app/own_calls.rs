//! `bearward explain` about a call that the gateway answers itself: what its head and the database decide.
//!
//! A body is not part of the question. Where the gateway needs one, the text says what it must contain.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};

use super::explain_unknown::{Unknown, unless_revoked};
use super::stored;
use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::{BearerToken, TokenLocation, login_cookies};
use crate::auth::revocations::RevocationKeys;
use crate::broker::revoke::right_of;
use crate::config::{Config, StoreSettings};
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::{can_help, session_ended};
use crate::gateway::endpoints::{Endpoint, ResourceServer};
use crate::gateway::oauth;
use crate::gateway::own_call::OwnCall;
use crate::gateway::route::Capture;
use crate::gateway::token_calls::revoker;
use crate::limits::throttle::Throttle;
use crate::store::Store;
use crate::tokens::family::Family;
use crate::tokens::family::rotation::end_of;
use crate::tokens::jwt::VerifiedToken;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject, with_causes};

/// What the gateway would do. The text completes the sentence "the gateway itself …".
type Outcome = Result<String, Failure>;

pub(super) enum Failure {
    Rejected(Reject),
    /// Why it is not known what the gateway would do.
    Unknown(String),
}

/// Where it finds a session.
pub(super) enum Sessions {
    /// The database, which another process may have open.
    Database(StoreSettings),
    /// The store of this running gateway.
    Store(Arc<dyn Store>),
}

pub(super) struct OwnCalls {
    sessions: Sessions,
    resource_servers: Vec<ResourceServer>,
    /// `tokens.refresh_idle_lifetime`
    idle: Duration,
    /// `[throttle]` of the running gateway. `None`: nothing is known of other calls.
    throttle: Option<Arc<Throttle>>,
    unknown: Unknown,
}

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Self {
        Failure::Rejected(reject)
    }
}

impl OwnCalls {
    pub(super) fn new(config: &Config, sessions: Sessions, throttle: Option<Arc<Throttle>>, unknown: Unknown) -> Self {
        OwnCalls {
            sessions,
            resource_servers: config.oauth.resource_servers.clone(),
            idle: config.tokens.lifetimes.idle,
            throttle,
            unknown,
        }
    }

    pub(super) async fn answer(
        &self,
        call: &OwnCall,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        match call {
            OwnCall::RedirectToHttps(_) => Ok("redirects the request to https".into()),
            OwnCall::Preflight(_) => Ok("responds to the CORS preflight".into()),
            OwnCall::Refresh => self.refresh(headers, authenticator, context).await,
            OwnCall::Revoke { token_id } => self.revoke(token_id, headers, authenticator, context).await,
            OwnCall::Endpoint(endpoint) => self.endpoint(*endpoint, headers, authenticator, context).await,
            OwnCall::SignIn(call) => Ok(call.purpose().into()),
            OwnCall::Metadata => Ok("publishes the metadata of this issuer".into()),
            OwnCall::Keys => Ok("publishes the gateway's public keys".into()),
        }
    }

    /// `POST /user/refresh`
    async fn refresh(
        &self,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Outcome {
        self.check_calls(context)?;
        let auth = context.auth_by(headers);
        let (token, proved) = authenticator.authenticate_refresh(headers, self.idle, &auth).await?;
        let session = self.refreshable(&token, authenticator, context).await?;
        self.check_knows_proof(proved.key.is_some())?;
        Ok(format!("refreshes session {session}, if the body has its current refresh token"))
    }

    /// A request that was rejected: the gateway refreshes an expired access token in a cookie.
    pub(super) async fn refresh_cookie<B>(
        &self,
        request: &Request<B>,
        rejected: Reject,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Outcome {
        let route = context.route.as_ref().filter(|_| can_help(&rejected, context));
        let has_refresh_token = login_cookies::refresh_token(request.headers()).is_some();
        let Some(route) = route.filter(|_| has_refresh_token) else { return Err(rejected.into()) };
        let found = route.places.find(request, authenticator.token_size)?;
        if found.location != TokenLocation::Cookie {
            return Err(rejected.into());
        }
        self.check_calls(context)?;
        match self.refresh_expired(found.token(), authenticator, context).await {
            Err(Failure::Rejected(reject)) => Err(session_ended(reject, rejected).into()),
            outcome => outcome,
        }
    }

    async fn refresh_expired(
        &self,
        token: BearerToken<'_>,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Outcome {
        let token = authenticator.authenticate_expired(token, self.idle, &context.auth()).await?;
        let session = self.refreshable(&token, authenticator, context).await?;
        Ok(format!("refreshes session {session}, if its cookie has the current refresh token, and decides again"))
    }

    /// The session of this token, if it can be refreshed.
    async fn refreshable(
        &self,
        token: &VerifiedToken,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Result<TokenId, Failure> {
        // A token of another issuer has no session here.
        let id = token.family.ok_or(Reject::from(Reason::GrantMismatch))?;
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.check_refreshes(id))?;
        let family = self.family(id).await?.ok_or(Reject::from(Reason::GrantUnknown))?;
        if authenticator.revocations.is_revoked(&RevocationKeys::of(token)) {
            return Err(Failure::Rejected(Reason::GrantRevoked.into()));
        }
        match end_of(&family, None, context.now) {
            Some(reason) => Err(Failure::Rejected(reason.into())),
            None => Ok(id),
        }
    }

    /// `DELETE /token/{tokenId}`
    async fn revoke(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        self.check_calls(context)?;
        let (caller, family) = revoker(parameter, headers, authenticator, context).await?;
        authenticator.use_proof(&caller, context.now).await?;
        let (id, by) = right_of(&caller, family)?;
        let found = self.family(id).await?.filter(|family| by.can_revoke(family));
        let family = found.ok_or(Reject::from(Reason::TokenNotFound))?;
        self.check_knows_proof(caller.proof().is_some())?;
        Ok(match family.revoked {
            Some(_) => format!("responds 200: session {id} is revoked already"),
            None => format!("revokes session {id}"),
        })
    }

    /// One of `[oauth]`.
    async fn endpoint(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        match endpoint {
            Endpoint::Token | Endpoint::Revoke => {
                self.check_failures(context)?;
                self.check_calls(context)?;
                oauth::check_no_credentials(headers)?;
                if endpoint == Endpoint::Token {
                    self.check_grant_proof(headers, authenticator, context).await?;
                }
            }
            Endpoint::Introspect => self.check_introspection(headers, authenticator, context).await?,
            Endpoint::BackchannelLogout(_) | Endpoint::SecurityEvents(_) => self.check_failures(context)?,
            Endpoint::ProtectedResource => {}
        }
        Ok(endpoint.purpose().to_owned())
    }

    async fn check_introspection(
        &self,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Failure> {
        let found = oauth::authenticate_introspection(headers, &self.resource_servers, authenticator, context).await;
        let caller = match found {
            Ok((_, caller)) => caller,
            Err(reject) => {
                if oauth::has_basic_credentials(headers) {
                    self.check_failures(context)?;
                }
                return Err(reject.into());
            }
        };
        // The credentials of a resource server cannot be revoked.
        let Some(caller) = caller else { return Ok(()) };
        authenticator.use_proof(&caller, context.now).await?;
        if let Some(why) = &self.unknown.revocations {
            return Err(Failure::Unknown(unless_revoked(why)));
        }
        self.check_knows_proof(caller.proof().is_some())
    }

    /// A login at a backend: the gateway captures its response.
    pub(super) async fn check_capture(
        &self,
        permit: &Permit,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Result<(), Failure> {
        let Some(capture) = permit.route().capture.filter(|capture| *capture != Capture::Logout) else {
            return Ok(());
        };
        self.check_failures(context)?;
        self.check_calls(context)?;
        match capture == Capture::Login {
            true => self.check_grant_proof(headers, authenticator, context).await,
            false => Ok(()),
        }
    }

    /// The proof of a client that asks for tokens.
    async fn check_grant_proof(
        &self,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Result<(), Failure> {
        let proved = authenticator.grant_proof(&context.auth_by(headers)).await?;
        self.check_knows_proof(proved.key.is_some())
    }

    fn check_knows_proof(&self, has_proof: bool) -> Result<(), Failure> {
        let unknown = self.unknown.about_proof().filter(|_| has_proof);
        unknown.map_or(Ok(()), |why| Err(Failure::Unknown(why)))
    }

    /// `throttle.calls`
    fn check_calls(&self, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.check_calls(context.client()))
    }

    /// `throttle.failures`
    fn check_failures(&self, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.check_failures(context.client()))
    }

    async fn family(&self, id: TokenId) -> Result<Option<Family>, Failure> {
        if let Some(why) = &self.unknown.revocations {
            return Err(Failure::Unknown(unless_revoked(why)));
        }
        let unknown = |error: &dyn std::error::Error| Failure::Unknown(unless_revoked(&with_causes(error)));
        match &self.sessions {
            Sessions::Database(settings) => stored::family(settings, id).map_err(|error| unknown(&error)),
            Sessions::Store(store) => store.family(id).await.map_err(|error| unknown(&error)),
        }
    }
}

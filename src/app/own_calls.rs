//! `bearward explain` about a call that the gateway answers itself: what its head and the database decide.
//!
//! A body is not part of the question. Where the gateway needs one, the text says what it must contain.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};

use super::explain_authorization::AuthorizationQuestions;
use super::explain_unknown::{Unknown, unless_revoked};
use super::stored;
use crate::auth::authenticate::Authenticator;
use crate::auth::revocations::RevocationKeys;
use crate::config::{Config, StoreSettings};
use crate::gateway::authorization_server::NoPreview;
use crate::gateway::authorize::Permit;
use crate::gateway::call_checks::{CallChecks, FindSession, Revoker};
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::{ExpiredCookies, session_ended};
use crate::gateway::endpoints::{BrowserEndpoint, ClientEndpoint, Endpoint, ResourceServer};
use crate::gateway::oauth;
use crate::gateway::own_call::OwnCall;
use crate::gateway::route::Capture;
use crate::limits::throttle::Throttle;
use crate::store::FamilyStore;
use crate::tokens::family::rotation::end_of;
use crate::tokens::family::{Family, has_client_auth};
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
    Store(Arc<dyn FamilyStore>),
}

pub(super) struct OwnCalls {
    sessions: Sessions,
    authorization: AuthorizationQuestions,
    resource_servers: Vec<ResourceServer>,
    /// `tokens.refresh_idle_lifetime`
    idle: Duration,
    /// It counts nothing.
    throttle: Throttle,
    unknown: Unknown,
}

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Self {
        Failure::Rejected(reject)
    }
}

impl From<NoPreview> for Failure {
    fn from(none: NoPreview) -> Self {
        match none {
            NoPreview::Rejected(reject) => Failure::Rejected(reject),
            NoPreview::Unknown(why) => Failure::Unknown(why),
        }
    }
}

impl OwnCalls {
    pub(super) fn new(
        config: &Config,
        sessions: Sessions,
        authorization: AuthorizationQuestions,
        throttle: Throttle,
        unknown: Unknown,
    ) -> Self {
        OwnCalls {
            sessions,
            authorization,
            resource_servers: config.oauth.resource_servers.clone(),
            idle: config.tokens.lifetimes.idle,
            throttle,
            unknown,
        }
    }

    fn checks<'c>(&'c self, authenticator: &'c Authenticator) -> CallChecks<'c> {
        CallChecks { throttle: &self.throttle, authenticator, idle: self.idle }
    }

    pub(super) async fn answer(
        &self,
        call: &OwnCall,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let checks = self.checks(authenticator);
        if let OwnCall::Endpoint(endpoint) = call {
            checks.admit_endpoint(*endpoint, context)?;
        }
        match call {
            OwnCall::RedirectToHttps(_) => Ok("redirects the request to https".into()),
            OwnCall::Preflight(_) => Ok("responds to the CORS preflight".into()),
            OwnCall::Refresh => self.refresh(&checks, headers, context).await,
            OwnCall::Revoke { token_id } => self.revoke(&checks, token_id, headers, context).await,
            OwnCall::Endpoint(Endpoint::Browser(BrowserEndpoint::Authorize)) => {
                Ok(self.authorization.answer(context)?)
            }
            OwnCall::Endpoint(endpoint) => {
                self.check_endpoint(&checks, *endpoint, headers, context).await?;
                Ok(endpoint.purpose().into())
            }
            OwnCall::SignIn(call) => Ok(call.purpose().into()),
            OwnCall::Metadata => Ok("publishes the metadata of this issuer".into()),
            OwnCall::Keys => Ok("publishes the gateway's public keys".into()),
        }
    }

    /// `POST /user/refresh`
    async fn refresh(&self, checks: &CallChecks<'_>, headers: &HeaderMap, context: &mut RequestContext<'_>) -> Outcome {
        checks.admit(context)?;
        let by = checks.refresh(headers, context).await?;
        let session = self.refreshable(checks, &by.token, context).await?;
        self.check_knows_proof(by.proved.key.is_some())?;
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
        let Some(cookies) = ExpiredCookies::of(request, &rejected, authenticator.token_size, context)? else {
            return Err(rejected.into());
        };
        match self.refresh_expired(&self.checks(authenticator), &cookies, context).await {
            Err(Failure::Rejected(reject)) => Err(session_ended(reject, rejected).into()),
            outcome => outcome,
        }
    }

    async fn refresh_expired(
        &self,
        checks: &CallChecks<'_>,
        cookies: &ExpiredCookies<'_>,
        context: &RequestContext<'_>,
    ) -> Outcome {
        let token = checks.expired_cookie(cookies.access.token(), context).await?;
        let session = self.refreshable(checks, &token, context).await?;
        Ok(format!("refreshes session {session}, if its cookie has the current refresh token, and decides again"))
    }

    /// The session of this token, if it can be refreshed.
    async fn refreshable(
        &self,
        checks: &CallChecks<'_>,
        token: &VerifiedToken,
        context: &RequestContext<'_>,
    ) -> Result<TokenId, Failure> {
        // A token of another issuer has no session here.
        let id = token.family.ok_or(Reject::from(Reason::GrantMismatch))?;
        self.throttle.check_refreshes(id)?;
        let family = self.family(id).await?.ok_or(Reject::from(Reason::GrantUnknown))?;
        if checks.authenticator.known.revocations.is_revoked(&RevocationKeys::of(token)) {
            return Err(Failure::Rejected(Reason::GrantRevoked.into()));
        }
        if has_client_auth(&family.claims) {
            return Err(Failure::Rejected(Reason::ClientNotAuthenticated.into()));
        }
        match end_of(&family, None, context.now) {
            Some(reason) => Err(Failure::Rejected(reason.into())),
            None => Ok(id),
        }
    }

    /// `DELETE /token/{tokenId}`
    async fn revoke(
        &self,
        checks: &CallChecks<'_>,
        parameter: &str,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let Revoker { caller, family: id, by } = checks.revoke(parameter, headers, self, context).await?;
        let found = self.family(id).await?.filter(|family| by.can_revoke(family));
        let family = found.ok_or(Reject::from(Reason::TokenNotFound))?;
        self.check_knows_proof(caller.proof().is_some())?;
        Ok(match family.revoked {
            Some(_) => format!("responds 200: session {id} is revoked already"),
            None => format!("revokes session {id}"),
        })
    }

    /// A path that the operator chooses.
    async fn check_endpoint(
        &self,
        checks: &CallChecks<'_>,
        endpoint: Endpoint,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Failure> {
        match endpoint {
            Endpoint::ProtectedResource | Endpoint::Register | Endpoint::Report(_) => Ok(()),
            Endpoint::Browser(_) => Ok(self.authorization.check_page(headers, context)?),
            Endpoint::Client(ClientEndpoint::Introspect) => self.check_introspection(checks, headers, context).await,
            Endpoint::Client(ClientEndpoint::Revoke) => Ok(oauth::check_no_credentials(headers)?),
            Endpoint::Client(ClientEndpoint::Token) | Endpoint::Push => {
                oauth::check_no_credentials(headers)?;
                self.check_grant_proof(checks, headers, context).await
            }
        }
    }

    async fn check_introspection(
        &self,
        checks: &CallChecks<'_>,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Failure> {
        let servers = &self.resource_servers;
        let by = oauth::introspector(headers, servers, checks.authenticator, &self.throttle, context).await?;
        // The credentials of a resource server cannot be revoked.
        let Some(caller) = by.caller else { return Ok(()) };
        if let Some(why) = &self.unknown.revocations {
            return Err(Failure::Unknown(unless_revoked(why)));
        }
        self.check_knows_proof(caller.proof().is_some())
    }

    /// A login at a backend: the gateway captures its response.
    pub(super) async fn check_capture<B>(
        &self,
        permit: &Permit,
        request: &Request<B>,
        authenticator: &Authenticator,
        context: &RequestContext<'_>,
    ) -> Result<(), Failure> {
        let Some(capture) = permit.route().capture else { return Ok(()) };
        let checks = self.checks(authenticator);
        checks.admit_capture(capture, permit, request.method(), request.headers(), context)?;
        if capture == Capture::Login {
            self.check_grant_proof(&checks, request.headers(), context).await?;
        }
        Ok(())
    }

    /// As if the body were good: then the gateway uses the proof up.
    async fn check_grant_proof(
        &self,
        checks: &CallChecks<'_>,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<(), Failure> {
        let proof = checks.grant_proof(headers, context).await?;
        checks.use_up_everywhere(proof, context).await?;
        self.check_knows_proof(proof.bound.key.is_some())
    }

    fn check_knows_proof(&self, has_proof: bool) -> Result<(), Failure> {
        match self.unknown.about_proof() {
            Some(why) if has_proof => Err(Failure::Unknown(why)),
            _ => Ok(()),
        }
    }
}

impl FindSession for OwnCalls {
    type Error = Failure;

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

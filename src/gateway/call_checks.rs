//! The calls that the gateway answers itself, as far as the head of a request decides them.
//!
//! The gateway runs these checks before it reads a body, so that a client without credentials sends none. `explain`
//! runs them with a throttle and an authenticator that have no effects. There is no other order of these checks.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};

use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{self, BearerToken};
use crate::broker::revoke::{self, right_of};
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::csrf;
use crate::gateway::endpoints::{ClientEndpoint, ResourceServer};
use crate::gateway::oauth::{self, EndpointCaller, Introspector};
use crate::gateway::route::Capture;
use crate::limits::throttle::Throttle;
use crate::store::RevokedBy;
use crate::tokens::bound::Bound;
use crate::tokens::jwt::VerifiedToken;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// The checks, with what they count in.
pub struct CallChecks<'c> {
    pub throttle: &'c Throttle,
    pub authenticator: &'c Authenticator,
    /// `[[oauth.resource_server]]`
    pub resource_servers: &'c [ResourceServer],
    /// `tokens.refresh_idle_lifetime`
    pub idle: Duration,
}

/// The caller of `POST /user/refresh`.
pub struct Refresher {
    pub token: Arc<VerifiedToken>,
    pub proved: Bound,
}

/// The caller of `DELETE /token/{tokenId}`, and what it may revoke.
pub struct Revoker {
    pub caller: Caller,
    pub family: TokenId,
    pub by: RevokedBy,
}

impl CallChecks<'_> {
    /// `POST /user/refresh`
    pub async fn refresh(&self, headers: &HeaderMap, context: &mut RequestContext<'_>) -> Result<Refresher, Reject> {
        self.throttle.count_call(context.client())?;
        let auth = context.auth_by(headers);
        let (token, proved) = self.authenticator.authenticate_refresh(headers, self.idle, &auth).await?;
        let token = Arc::new(token);
        context.record.caller = Some(token.clone());
        Ok(Refresher { token, proved })
    }

    /// A refresh of the session of a browser, by its expired token in a cookie.
    pub async fn cookie_refresh(
        &self,
        expired: BearerToken<'_>,
        context: &RequestContext<'_>,
    ) -> Result<VerifiedToken, Reject> {
        self.throttle.count_call(context.client())?;
        self.authenticator.authenticate_expired(expired, self.idle, &context.auth()).await
    }

    /// `DELETE /token/{tokenId}`. The proof of the caller is used up.
    pub async fn revoke(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Result<Revoker, Reject> {
        self.throttle.count_call(context.client())?;
        let family = revoke::named_family(parameter);
        context.record.token_id = family;
        let bearer = bearer::find_with_scheme(headers, self.authenticator.token_size)?;
        let caller = self.authenticator.authenticate(bearer, &context.auth_by(headers)).await?;
        context.record.caller = Some(caller.token().clone());
        self.authenticator.use_proof(&caller, context.now).await?;
        let (family, by) = right_of(&caller, family)?;
        Ok(Revoker { caller, family, by })
    }

    /// An endpoint for OAuth clients. Counts it if it fails.
    pub async fn endpoint(
        &self,
        endpoint: ClientEndpoint,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Result<EndpointCaller, Reject> {
        let caller = match endpoint {
            ClientEndpoint::Token => self.client(headers, context).await.map(EndpointCaller::Client),
            ClientEndpoint::Revoke => self.check_client_call(headers, context).map(|()| EndpointCaller::Owner),
            // Resource servers introspect for all of their clients, and authenticate with a credential of their own.
            ClientEndpoint::Introspect => self.introspector(headers, context).await.map(EndpointCaller::Introspector),
        };
        self.throttle.count_outcome(&caller, context.client());
        caller
    }

    /// A report of an identity provider. Only failures count against its address: when an administrator ends all
    /// sessions, a provider reports each of them.
    pub fn report(&self, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.check_failures(context.client())
    }

    /// A login or logout at a backend: the gateway captures the response. Returns what the client has proved. A login
    /// is bound to the key of its proof, and gets no tokens if the proof is bad. It can be bound to a certificate. A
    /// browser that keeps the tokens in cookies sends no proofs.
    pub async fn login(
        &self,
        capture: Capture,
        permit: &Permit,
        method: &Method,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<Bound, Reject> {
        match capture {
            Capture::Logout => return Ok(Bound::default()),
            Capture::CookieLogin => check_origin(permit, method, headers, context)?,
            Capture::Login => {}
        }
        self.throttle.check_failures(context.client())?;
        self.throttle.count_call(context.client())?;
        if capture == Capture::CookieLogin {
            return Ok(Bound::default());
        }
        let proved = self.authenticator.grant_proof(&context.auth_by(headers)).await;
        self.throttle.count_outcome(&proved, context.client());
        proved
    }

    async fn client(&self, headers: &HeaderMap, context: &RequestContext<'_>) -> Result<Bound, Reject> {
        self.check_client_call(headers, context)?;
        self.authenticator.grant_proof(&context.auth_by(headers)).await
    }

    fn check_client_call(&self, headers: &HeaderMap, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.check_failures(context.client())?;
        self.throttle.count_call(context.client())?;
        oauth::check_no_credentials(headers)
    }

    async fn introspector(
        &self,
        headers: &HeaderMap,
        context: &mut RequestContext<'_>,
    ) -> Result<Introspector, Reject> {
        let found = oauth::authenticate(headers, self.resource_servers, self.authenticator, context).await;
        if found.is_err() && oauth::has_basic_credentials(headers) {
            // A resource server with the right secret is never limited. With a wrong one, its address soon gets 429.
            self.throttle.check_failures(context.client())?;
        }
        found
    }
}

/// Another site must not log a browser in as its own user (login CSRF).
fn check_origin(
    permit: &Permit,
    method: &Method,
    headers: &HeaderMap,
    context: &RequestContext<'_>,
) -> Result<(), Reject> {
    let Some(host) = &context.record.host else { return Err(Reason::BadHost.into()) };
    let scheme = &context.source.origin().scheme;
    let target = csrf::Target { method, websocket: false, logout: false, host, scheme };
    csrf::check(headers, &target, &permit.route().origins)
}

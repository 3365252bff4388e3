//! The calls that the gateway answers itself, as far as the head of a request decides them.
//!
//! A call with a body is admitted first, by its address. The gateway then reads the body, and runs the other checks by
//! the time of its end: a token that was revoked before that is rejected, and a proof is not used for a malformed body.
//! `explain` runs the same checks, with a throttle and an authenticator that have no effects, and without the body.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};

use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{self, BearerToken};
use crate::auth::proof_verifier::GrantProof;
use crate::broker::Broker;
use crate::broker::revoke::{self, check_other, right_of, session_of_other};
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::csrf::{self, CsrfRequest};
use crate::gateway::endpoints::{BrowserEndpoint, Endpoint};
use crate::gateway::route::Capture;
use crate::limits::throttle::Throttle;
use crate::store::RevokedBy;
use crate::tokens::bound::Bound;
use crate::tokens::family::Family;
use crate::tokens::jwt::VerifiedToken;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// The checks, with what they count in.
pub struct CallChecks<'c> {
    pub throttle: &'c Throttle,
    pub authenticator: &'c Authenticator,
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

/// Where the checks find sessions.
pub trait FindSession {
    /// It says more than a rejection if the session cannot be looked for.
    type Error: From<Reject>;

    /// The session with this id, alive or not.
    fn family(&self, id: TokenId) -> impl Future<Output = Result<Option<Family>, Self::Error>> + Send;
}

impl FindSession for Broker {
    type Error = Reject;

    fn family(&self, id: TokenId) -> impl Future<Output = Result<Option<Family>, Reject>> + Send {
        Broker::family(self, id)
    }
}

impl CallChecks<'_> {
    /// Admits a call of an endpoint with a path that the operator chooses, before anything else is done for it.
    pub fn admit_endpoint(&self, endpoint: Endpoint, context: &RequestContext<'_>) -> Result<(), Reject> {
        match endpoint {
            // A browser shows a sealed text or a cookie first.
            Endpoint::ProtectedResource | Endpoint::Browser(BrowserEndpoint::Consent | BrowserEndpoint::Grants) => {
                Ok(())
            }
            Endpoint::Browser(BrowserEndpoint::Authorize) | Endpoint::Register => self.admit(context),
            Endpoint::Push => self.admit_guess(context),
            Endpoint::Client(endpoint) if endpoint.takes_guesses() => self.admit_guess(context),
            // The caller of an introspection shows a credential first.
            Endpoint::Client(_) => Ok(()),
            // Only failures count against its address: when an administrator ends all sessions, a provider reports each
            // of them.
            Endpoint::Report(_) => self.throttle.check_failures(context.client()),
        }
    }

    /// Admits a call of a client with a token.
    pub fn admit(&self, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.count_call(context.client())
    }

    /// Admits a call that could guess a token or a password.
    fn admit_guess(&self, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.throttle.check_failures(context.client())?;
        self.throttle.count_call(context.client())
    }

    /// `POST /user/refresh`, after it was admitted.
    pub async fn refresh(&self, headers: &HeaderMap, context: &mut RequestContext<'_>) -> Result<Refresher, Reject> {
        let auth = context.auth_by(headers);
        let (token, proved) = self.authenticator.authenticate_refresh(headers, self.idle, &auth).await?;
        let token = Arc::new(token);
        context.record.caller = Some(token.clone());
        Ok(Refresher { token, proved })
    }

    /// The session of a browser, by the access token in its cookie, which may have expired.
    pub async fn expired_cookie(
        &self,
        expired: BearerToken<'_>,
        context: &RequestContext<'_>,
    ) -> Result<VerifiedToken, Reject> {
        self.admit(context)?;
        self.authenticator.authenticate_expired(expired, self.idle, &context.auth()).await
    }

    /// `DELETE /token/{tokenId}`. The proof of the caller is used up.
    pub async fn revoke<S: FindSession>(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        sessions: &S,
        context: &mut RequestContext<'_>,
    ) -> Result<Revoker, S::Error> {
        self.admit(context)?;
        let family = revoke::named_family(parameter);
        context.record.token_id = family;
        let bearer = bearer::find_with_scheme(headers, self.authenticator.token_size)?;
        let caller = self.authenticator.authenticate(bearer, &context.auth_by(headers)).await?;
        context.record.caller = Some(caller.token().clone());
        self.authenticator.proof_verifier.use_up(caller.proof(), context.clock.now()).await?;
        let (family, by) = right_of(&caller, family)?;
        if let Some(of_caller) = session_of_other(caller.token(), family, &by) {
            check_other(sessions.family(of_caller).await?.as_ref())?;
        }
        Ok(Revoker { caller, family, by })
    }

    /// What a client has proved that asks for tokens.
    pub async fn grant_proof(&self, headers: &HeaderMap, context: &RequestContext<'_>) -> Result<GrantProof, Reject> {
        self.authenticator.proof_verifier.grant_proof(&context.auth_by(headers)).await
    }

    /// Uses that proof up at all gateways: see [`ProofVerifier::use_up_everywhere`].
    ///
    /// [`ProofVerifier::use_up_everywhere`]: crate::auth::proof_verifier::ProofVerifier::use_up_everywhere
    pub async fn use_up_everywhere(&self, proof: GrantProof, context: &RequestContext<'_>) -> Result<(), Reject> {
        self.authenticator.proof_verifier.use_up_everywhere(proof, context.clock.now()).await
    }

    /// A login or logout at a backend: the gateway captures the response.
    pub fn admit_capture(
        &self,
        capture: Capture,
        permit: &Permit,
        method: &Method,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<(), Reject> {
        match capture {
            Capture::Logout => return Ok(()),
            Capture::CookieLogin => check_origin(permit, method, headers, context)?,
            Capture::Login => {}
        }
        self.admit_guess(context)
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
    let scheme = &context.source.forwarded_client().scheme;
    let target = CsrfRequest { method, websocket: false, logout: false, host, scheme };
    csrf::check(headers, &target, &permit.route().origins)
}

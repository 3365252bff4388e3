//! The calls that the gateway answers itself: refresh, revoke, the OAuth endpoints and the published documents.

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer;
use crate::auth::keyring::Keyring;
use crate::auth::registered_clients::ClientKeys;
use crate::broker::refresh::RefreshRequest;
use crate::broker::{BODY_LIMIT, Broker, EXCHANGE_BODY_LIMIT, revoke};
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::CookieRefresh;
use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::oauth::{self, metadata};
use crate::gateway::provider_events::{EVENT_LIMIT, LOGOUT_LIMIT, Receivers};
use crate::limits::pace::MinRate;
use crate::limits::throttle::is_failure;
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::challenges::REALM;
use crate::protocols::http::respond;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

type Outcome = Result<Response<Body>, Reject>;

pub struct TokenCalls {
    pub broker: Arc<Broker>,
    pub keyring: Arc<Keyring>,
    /// `[oauth]`
    pub endpoints: Endpoints,
    /// Where identity providers report.
    pub receivers: Receivers,
    /// Of `[[oauth.client]]`.
    pub client_keys: Arc<ClientKeys>,
    /// `token_from = ["login_cookie"]`
    pub cookie_refresh: CookieRefresh,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `limits.min_upload_rate`
    pub min_upload_rate: MinRate,
    /// `timeouts.token_call_body`
    pub body_timeout: Duration,
}

/// Who calls `DELETE /token/{tokenId}`, and the family that the path names.
pub async fn revoker(
    parameter: &str,
    headers: &HeaderMap,
    authenticator: &Authenticator,
    context: &mut RequestContext<'_>,
) -> Result<(Caller, Option<TokenId>), Reject> {
    let family = revoke::named_family(parameter);
    context.record.token_id = family;
    let bearer = bearer::find_with_scheme(headers, authenticator.token_size)?;
    let caller = authenticator.authenticate(bearer, &context.auth_by(headers)).await?;
    context.record.caller = Some(caller.token().clone());
    Ok((caller, family))
}

impl TokenCalls {
    /// `POST /user/refresh`
    pub(super) async fn refresh(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let client = context.client();
        self.throttled(client, self.refresh_now(request, authenticator, context)).await
    }

    async fn refresh_now(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let content = self.read_body(request, BODY_LIMIT, context).await?;
        let refresh = RefreshRequest::read(request.headers(), &content)?;
        if refresh.client_id().is_some_and(|id| self.endpoints.client(id).is_some()) {
            let detail = "a registered client refreshes at the token endpoint, where it can authenticate";
            return Err(Reject::new(Reason::ClientNotAuthenticated, detail));
        }
        let idle = self.broker.settings.lifetimes.idle;
        let auth = context.auth_by(request.headers());
        let (bearer, proved) = authenticator.authenticate_refresh(request.headers(), idle, &auth).await?;
        let bearer = Arc::new(bearer);
        context.record.caller = Some(bearer.clone());
        let pair = self.broker.refresh(refresh, (&bearer, proved), context.event()).await?;
        Ok(respond::json(StatusCode::OK, &pair))
    }

    /// `DELETE /token/{tokenId}`
    pub(super) async fn revoke(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let client = context.client();
        self.throttled(client, self.revoke_now(parameter, headers, authenticator, context)).await
    }

    async fn revoke_now(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let (caller, family) = revoker(parameter, headers, authenticator, context).await?;
        authenticator.use_proof(&caller, context.now).await?;
        self.broker.revoke(&caller, family, context.event()).await?;
        Ok(respond::json(StatusCode::OK, &serde_json::json!({ "success": true })))
    }

    /// One of `[oauth]`.
    pub(super) async fn endpoint(
        &self,
        endpoint: Endpoint,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        if let (Endpoint::ProtectedResource, Some(resource)) = (endpoint, &self.endpoints.resource) {
            return Ok(respond::public_document(resource.document.clone()));
        }
        if let Endpoint::BackchannelLogout(_) | Endpoint::SecurityEvents(_) = endpoint {
            return self.report(endpoint, request, context).await;
        }
        let throttle = &self.broker.throttle;
        let client = context.client();
        // Resource servers introspect for all of their clients, and authenticate with a token of their own.
        if endpoint != Endpoint::Introspect {
            throttle.check_failures(client)?;
            throttle.count_call(client)?;
        }
        let exchanges = endpoint == Endpoint::Token && !self.endpoints.exchange.is_empty();
        let limit = if exchanges { EXCHANGE_BODY_LIMIT } else { BODY_LIMIT };
        let content = self.read_body(request, limit, context).await?;
        let attempt = match endpoint {
            // It counts wrong credentials itself.
            Endpoint::Introspect => None,
            _ => Some(throttle.begin_attempt(client)?),
        };
        let call = oauth::Call {
            broker: &self.broker,
            authenticator,
            endpoints: &self.endpoints,
            client_keys: &self.client_keys,
            headers: request.headers(),
            context,
        };
        let outcome = oauth::respond(call, endpoint, &content).await;
        if let Some(attempt) = attempt {
            attempt.end(is_failure(&outcome));
        }
        outcome
    }

    /// What an identity provider reports. Only failures count against its address: when an administrator ends all
    /// sessions, a provider reports each of them.
    async fn report(
        &self,
        endpoint: Endpoint,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let (throttle, client) = (&self.broker.throttle, context.client());
        throttle.check_failures(client)?;
        let outcome = match endpoint {
            Endpoint::BackchannelLogout(number) => self.receive_logout(number, request, context).await,
            Endpoint::SecurityEvents(number) => self.receive_event(number, request, context).await,
            _ => Err(Reason::NoRoute.into()),
        };
        match &context.record.rejected {
            // A rejection in the form of RFC 8935.
            Some(_) => throttle.count_failure(client),
            None => throttle.count_outcome(&outcome, client),
        }
        outcome
    }

    async fn receive_logout(
        &self,
        number: usize,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let receiver = self.receivers.logouts.get(number).ok_or(Reason::NoRoute)?;
        let content = self.read_body(request, LOGOUT_LIMIT, context).await?;
        receiver.receive(&self.broker, request.headers(), &content, context).await
    }

    async fn receive_event(
        &self,
        number: usize,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let receiver = self.receivers.streams.get(number).ok_or(Reason::NoRoute)?;
        receiver.check_sender(request.headers())?;
        let content = self.read_body(request, EVENT_LIMIT, context).await?;
        receiver.receive(&self.broker, request.headers(), &content, context).await
    }

    /// `GET /.well-known/jwks.json`: public, and cacheable for less time than a key is published ahead.
    pub(super) fn published_keys(&self) -> Response<Body> {
        let keys = self.keyring.keys();
        respond::public_json(&keys.own().published, keys.own().max_age)
    }

    /// `GET /.well-known/oauth-authorization-server`: public.
    pub(super) fn published_metadata(&self) -> Response<Body> {
        let binds = self.broker.settings.certificate_bound
            || self.endpoints.clients.iter().any(|client| client.certificate_bound);
        let metadata = metadata::of(&self.broker.settings.issuer, &self.endpoints, binds);
        respond::public_json(&metadata, self.keyring.keys().own().max_age)
    }

    /// The beginning of the challenge for the scheme Bearer.
    pub fn challenge(&self) -> &HeaderValue {
        self.endpoints.resource.as_ref().map_or(&REALM, |resource| &resource.challenge)
    }

    /// The rejection of a request to this path, as its client understands it. At the token endpoint, the most common
    /// library of MCP takes every code that it does not know as the end of the login, and has the user sign in again.
    /// No rejection there is a conflict (409): a retry would not help.
    pub fn rejection_for_client(&self, path: &str, reject: Reject) -> Reject {
        let status = reject.reason.status();
        let is_temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let is_token_endpoint = self.endpoints.token_endpoint.as_deref() == Some(path);
        if is_temporary && is_token_endpoint { reject.as_temporary() } else { reject }
    }

    /// Counts a call for the address that it comes from: `throttle.calls` before it, `throttle.failures` after it.
    async fn throttled(&self, client: IpAddr, call: impl Future<Output = Outcome>) -> Outcome {
        self.broker.throttle.count_call(client)?;
        let outcome = call.await;
        self.broker.throttle.count_outcome(&outcome, client);
        outcome
    }

    /// Reads the body, and the clock once more: what the call does is done at the end of the body, not at its head.
    async fn read_body(
        &self,
        request: &mut Request<Body>,
        limit: u64,
        context: &mut RequestContext<'_>,
    ) -> Result<Bytes, Reject> {
        let read = self.read_in_time(request, limit).await;
        context.now = context.clock.now();
        let content = read?;
        context.record.received = content.len() as u64;
        Ok(content)
    }

    /// Reads the body of a call that the gateway answers itself.
    pub(super) async fn read_in_time(&self, request: &mut Request<Body>, limit: u64) -> Result<Bytes, Reject> {
        let body = request.body_mut();
        *body = mem::take(body).with_idle_timeout(self.body_idle).with_min_rate(self.min_upload_rate);
        let read = tokio::time::timeout(self.body_timeout, body::read(body, limit)).await;
        read.map_err(|_| Reject::new(Reason::BodyTimeout, "not complete within timeouts.token_call_body"))?
    }
}

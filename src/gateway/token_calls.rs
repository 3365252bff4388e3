//! The calls that the gateway answers itself: refresh, revoke, the OAuth endpoints and the published documents.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::auth::authenticate::Authenticator;
use crate::auth::client_documents::ClientDocuments;
use crate::auth::keyring::Keyring;
use crate::auth::registered_clients::ClientKeys;
use crate::broker::refresh::RefreshRequest;
use crate::broker::{BODY_LIMIT, Broker, EXCHANGE_BODY_LIMIT};
use crate::gateway::authorization_counts::AuthorizationCounts;
use crate::gateway::authorization_server::settings::RegistrationSettings;
use crate::gateway::authorization_server::{self, AuthorizationCall};
use crate::gateway::call_checks::{CallChecks, Revoker};
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::CookieRefresh;
use crate::gateway::endpoints::{BrowserEndpoint, ClientEndpoint, Endpoint, Endpoints, ProviderReport};
use crate::gateway::oauth::{self, metadata};
use crate::gateway::protected_resource::ProtectedResource;
use crate::gateway::provider_events::{EVENT_LIMIT, LOGOUT_LIMIT, Receivers};
use crate::gateway::sign_in::SignIn;
use crate::limits::pace::MinRate;
use crate::limits::throttle::is_failure;
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
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
    /// `oauth.client_documents`
    pub client_documents: Arc<ClientDocuments>,
    pub authorization_counts: Arc<AuthorizationCounts>,
    /// `token_from = ["login_cookie"]`
    pub cookie_refresh: CookieRefresh,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `limits.min_upload_rate`
    pub min_upload_rate: MinRate,
    /// `timeouts.token_call_body`
    pub body_timeout: Duration,
}

impl TokenCalls {
    /// The checks of the heads of these calls.
    pub(super) fn checks<'c>(&'c self, authenticator: &'c Authenticator) -> CallChecks<'c> {
        CallChecks { throttle: &self.broker.throttle, authenticator, idle: self.broker.settings.lifetimes.idle }
    }

    /// `POST /user/refresh`
    pub(super) async fn refresh(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        self.checks(authenticator).admit(context)?;
        let outcome = self.refresh_now(request, authenticator, context).await;
        self.broker.throttle.count_outcome(&outcome, context.client());
        outcome
    }

    async fn refresh_now(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let content = self.read_body(request, BODY_LIMIT, context).await?;
        let refresh = RefreshRequest::read(request.headers(), &content)?;
        self.endpoints.denied.check(refresh.client_id().unwrap_or_default(), &self.broker.roots)?;
        if refresh.client_id().is_some_and(|id| self.endpoints.client(id).is_some()) {
            let detail = "a registered client refreshes at the token endpoint, where it can authenticate";
            return Err(Reject::new(Reason::ClientNotAuthenticated, detail));
        }
        let by = self.checks(authenticator).refresh(request.headers(), context).await?;
        let pair = self.broker.refresh(refresh, &by.token, by.proved, context.event()).await?;
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
        let outcome = self.revoke_now(parameter, headers, authenticator, context).await;
        self.broker.throttle.count_outcome(&outcome, context.client());
        outcome
    }

    async fn revoke_now(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let checks = self.checks(authenticator);
        let Revoker { caller, family, by } = checks.revoke(parameter, headers, &*self.broker, context).await?;
        let event = EventContext { caller: Some(caller.token().subject.clone()), ..context.event() };
        self.broker.revoke_family(family, by, event).await?;
        Ok(respond::json(StatusCode::OK, &serde_json::json!({ "success": true })))
    }

    /// A path that the operator chooses.
    pub(super) async fn endpoint(
        &self,
        endpoint: Endpoint,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        match endpoint {
            Endpoint::Client(endpoint) => self.client_call(endpoint, request, authenticator, context).await,
            Endpoint::Browser(_) => Err(Reason::NoRoute.into()),
            Endpoint::Push => self.push(request, authenticator, context).await,
            Endpoint::Register => self.register(request, authenticator, context).await,
            Endpoint::ProtectedResource => self.published_resource(context),
            Endpoint::Report(report) => {
                self.checks(authenticator).admit_endpoint(endpoint, context)?;
                let outcome = self.receive(report, request, context).await;
                self.count_report(&outcome, context);
                outcome
            }
        }
    }

    async fn client_call(
        &self,
        endpoint: ClientEndpoint,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        self.checks(authenticator).admit_endpoint(Endpoint::Client(endpoint), context)?;
        let exchanges = endpoint == ClientEndpoint::Token && !self.endpoints.exchange.is_empty();
        let limit = if exchanges { EXCHANGE_BODY_LIMIT } else { BODY_LIMIT };
        let content = self.read_body(request, limit, context).await?;
        let guesses = endpoint.takes_guesses();
        let attempt = guesses.then(|| self.broker.throttle.begin_attempt(context.client())).transpose()?;
        let call = self.oauth_call(request.headers(), authenticator, context);
        let outcome = oauth::respond(call, endpoint, &content).await;
        if let Some(attempt) = attempt {
            attempt.end(is_failure(&outcome));
        }
        outcome
    }

    fn oauth_call<'c, 'r>(
        &'c self,
        headers: &'c HeaderMap,
        authenticator: &'c Authenticator,
        context: &'c mut RequestContext<'r>,
    ) -> oauth::Call<'c, 'r> {
        let TokenCalls { broker, endpoints, client_keys, client_documents: documents, .. } = self;
        let counts = &self.authorization_counts;
        oauth::Call { broker, authenticator, endpoints, client_keys, documents, counts, headers, context }
    }

    /// The endpoint for pushed authorization requests.
    async fn push(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        self.checks(authenticator).admit_endpoint(Endpoint::Push, context)?;
        let content = self.read_body(request, BODY_LIMIT, context).await?;
        let attempt = self.broker.throttle.begin_attempt(context.client())?;
        let call = self.oauth_call(request.headers(), authenticator, context);
        let outcome = authorization_server::push(call, &content).await;
        attempt.end(is_failure(&outcome));
        outcome
    }

    /// The authorization endpoint, and the consent page.
    pub(super) async fn authorize(
        &self,
        endpoint: BrowserEndpoint,
        request: &mut Request<Body>,
        sign_in: Option<&SignIn>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let settings = self.endpoints.authorization.as_deref().ok_or(Reason::NoRoute)?;
        let form = match self.checks(authenticator).admit_endpoint(Endpoint::Browser(endpoint), context) {
            Ok(()) if *request.method() == Method::POST => {
                Ok(Some(self.read_body(request, BODY_LIMIT, context).await?))
            }
            Ok(()) => Ok(None),
            // A page says it.
            Err(limited) => Err(limited),
        };
        let call = self.oauth_call(request.headers(), authenticator, context);
        let mut call = AuthorizationCall::of(call, settings, sign_in);
        Ok(call.respond(endpoint, request, form).await)
    }

    async fn register(
        &self,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let settings = self.endpoints.authorization.as_ref().and_then(|settings| settings.registration.as_ref());
        let settings = settings.ok_or(Reason::NoRoute)?;
        let registered = self.register_with(settings, request, authenticator, context).await;
        self.authorization_counts.count_registration(registered.as_ref().err().map(|reject| reject.reason));
        registered
    }

    async fn register_with(
        &self,
        settings: &RegistrationSettings,
        request: &mut Request<Body>,
        authenticator: &Authenticator,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        self.checks(authenticator).admit_endpoint(Endpoint::Register, context)?;
        let content = self.read_body(request, BODY_LIMIT, context).await?;
        authorization_server::register(settings, request.headers(), &content, &self.broker.roots, context.now)
    }

    async fn receive(
        &self,
        report: ProviderReport,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        match report {
            ProviderReport::BackchannelLogout(number) => self.receive_logout(number, request, context).await,
            ProviderReport::SecurityEvents(number) => self.receive_event(number, request, context).await,
        }
    }

    fn count_report(&self, outcome: &Outcome, context: &RequestContext<'_>) {
        let throttle = &self.broker.throttle;
        match &context.record.rejected {
            // A rejection in the form of RFC 8935.
            Some(_) => throttle.count_failure(context.client()),
            None => throttle.count_outcome(outcome, context.client()),
        }
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

    /// The metadata of the protected resource (RFC 9728).
    fn published_resource(&self, context: &RequestContext<'_>) -> Outcome {
        let document =
            self.endpoints.resources.published(context.record.uri.path(), context.host()).ok_or(Reason::NoRoute)?;
        Ok(respond::public_document(document.clone()))
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

    /// What a client without a token learns of, where the route has no resource of its own.
    pub fn resource(&self) -> Option<&ProtectedResource> {
        self.endpoints.resources.of_gateway.as_deref()
    }

    /// Returns true if no page of another origin may read a response to a request to this path.
    pub fn is_page(&self, path: &str) -> bool {
        self.endpoints.is_page(path)
    }

    /// The rejection of a request to this path, as its client understands it. On the way to tokens, the most common
    /// library of MCP takes every code that it does not know as the end of the login, and has the user sign in again.
    /// No rejection there is a conflict (409): a retry would not help.
    pub fn rejection_for_client(&self, path: &str, reject: Reject) -> Reject {
        let status = reject.reason.status();
        let is_temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        if is_temporary && self.endpoints.is_for_clients(path) { reject.as_temporary() } else { reject }
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

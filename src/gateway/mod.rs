//! HOT PATH: every request, from its head to its response.
//!
//! [`Gateway::handle`] cannot fail. A front says who sent the request, [`Gateway::respond`] runs the steps within
//! `timeouts.request`, and `deliver` hands the response to the connection. The three stand first: they are the whole
//! way.

pub mod authorization_counts;
pub mod authorization_server;
pub mod authorize;
mod back;
pub mod call_checks;
pub mod client;
pub mod client_certificates;
pub mod context;
pub mod cookie_refresh;
pub mod cors;
pub mod csrf;
pub mod decide;
pub mod delivery;
pub mod endpoints;
pub mod exchange_rule;
pub mod explanation;
pub mod fixed_response;
pub mod forward;
pub mod forward_auth;
pub mod forwarded_token;
pub mod front;
pub mod https;
pub mod login_capture;
pub mod oauth;
pub mod own_call;
mod path_table;
pub mod protected_resource;
pub mod provider_events;
pub mod rates;
mod redirects;
mod request_timeout;
mod response;
pub mod route;
mod route_methods;
pub mod route_table;
pub mod rules;
pub mod sign_in;
pub mod source;
pub mod streams;
pub mod token_calls;
pub mod unreadable;
pub mod upload;
pub mod used_proof;
pub mod worker;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request, Response};

use crate::gateway::authorize::Permit;
use crate::gateway::back::Back;
use crate::gateway::client::Peer;
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::NewCookies;
use crate::gateway::cors::NotShared;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::delivery::Delivery;
use crate::gateway::endpoints::Endpoint;
use crate::gateway::forward::{Forwarded, Forwarder};
use crate::gateway::front::Fronts;
use crate::gateway::own_call::OwnCall;
use crate::gateway::rates::check_rates;
use crate::gateway::response::ResponseRules;
use crate::gateway::route::Capture;
use crate::gateway::sign_in::SignIn;
use crate::gateway::source::Source;
use crate::gateway::token_calls::TokenCalls;
use crate::gateway::worker::Worker;
use crate::limits::rate_limit::RateLimits;
use crate::protocols::http::body::Body;
use crate::protocols::http::challenges::REALM;
use crate::protocols::http::framing::RejectedHead;
use crate::protocols::websocket;
use crate::telemetry::metrics::RequestsByRoute;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Everything that a request needs. Immutable: a reload makes a new one.
pub struct Gateway {
    pub clock: Arc<dyn Clock>,
    pub decider: Decider,
    pub fronts: Fronts,
    pub forwarder: Forwarder,
    /// `None`: browsers cannot sign in at a provider.
    pub sign_in: Option<Box<SignIn>>,
    /// The calls that the gateway answers itself.
    pub token_calls: TokenCalls,
    /// `[[rate]]` and `[[route.rate]]`
    pub rates: RateLimits,
    /// `login.max_response_size`, in bytes.
    pub max_login_response: u64,
    /// The counters of the routes in `decider`.
    pub requests_by_route: Arc<RequestsByRoute>,
    /// `timeouts.request`
    pub request_timeout: Option<Duration>,
}

/// The response to a request, and what its connection has to know about it.
pub struct Handled {
    pub response: Response<Body>,
    /// Why the gateway rejected the request. `None` if it did not: a backend may send 429 as well.
    pub rejected: Option<Reason>,
    /// If true, a limit rejected the request before its body was read. The connection closes, and the address gets a
    /// penalty point.
    pub body_rejected: bool,
}

impl Gateway {
    /// Handles one request. Takes it by reference: by value, the future of each step would hold two copies of it.
    pub async fn handle(&self, request: &mut Request<Body>, peer: &Arc<Peer>, worker: &Arc<Worker>) -> Handled {
        let front = self.fronts.of(request);
        let mut delivery = Delivery::open(request, peer, worker, self.clock.now());
        let source = front.source(request, peer, &self.decider, &self.token_calls, &*self.clock, &mut delivery).await;
        let back = front.back(request);
        let rules = ResponseRules { back, page: self.decider.cors.origin(request.headers()) };
        let result = match source {
            Ok(source) => self.respond_in_time(request, &source, back, &mut delivery).await,
            Err(reject) => Err(reject),
        };
        self.deliver(result, request, rules, delivery, peer, worker).await
    }

    /// Leads a request from its head to a response. Each step may reject it. Sets `is_grpc_call` before it forwards a
    /// call.
    async fn respond(
        &self,
        request: &mut Request<Body>,
        source: &Source<'_>,
        back: Back<'_>,
        delivery: &mut Delivery,
        is_grpc_call: &AtomicBool,
    ) -> Result<Forwarded, Reject> {
        websocket::http2::translate(request)?;
        self.reserve(request, source, delivery)?;
        let mut context = delivery.context(source, &*self.clock);
        // Replaced in rare cases only: a decision that passes through each of them would be copied by each.
        let mut decision = self.decider.decide(request, &mut context).await;
        let mut cookies = None;
        if cookie_refresh::is_due(decision.as_ref().err(), &context) {
            (decision, cookies) = Box::pin(self.refresh_cookies(request, decision, &mut context)).await;
        }
        check_rates(&self.rates, &self.decider, &decision, request.uri().path(), &mut context)?;
        if used_proof::has_proof(&decision) {
            decision = Box::pin(used_proof::use_up(decision, &self.decider.authenticator, &mut context)).await;
        }
        let decision = match (decision, &self.sign_in) {
            (Ok(decision), _) => decision,
            (Err(reject), Some(sign_in)) => {
                return sign_in.answer(reject, request, &self.decider.routes, &mut context).map(Forwarded::local_reply);
            }
            (Err(reject), None) => return Err(reject),
        };
        if let Some(answer) = back.answer(&decision, &self.forwarder, request, &context).await? {
            return Ok(Forwarded::local_reply(answer));
        }
        let nonce = used_proof::next_nonce(&decision, &self.decider.authenticator, context.now);
        if let Decision::Forward { permit, .. } = &decision {
            is_grpc_call.store(self.forwarder.is_grpc_call(permit, request), Ordering::Relaxed);
        }
        let mut forwarded = self.carry_out(decision, request, &mut context).await?;
        if let Some(nonce) = nonce {
            used_proof::add_nonce(nonce, &mut forwarded);
        }
        if let Some(cookies) = cookies {
            cookies.add_to_headers(forwarded.response.headers_mut());
        }
        response::check_connect(&forwarded, context.record)?;
        Ok(forwarded)
    }

    /// Turns a rejection into a response, completes its head, and hands it to the connection. A separate future, so
    /// that its memory overlaps with that of `respond_in_time`.
    async fn deliver(
        &self,
        result: Result<Forwarded, Reject>,
        request: &Request<Body>,
        rules: ResponseRules<'_>,
        mut delivery: Box<Delivery>,
        peer: &Peer,
        worker: &Arc<Worker>,
    ) -> Handled {
        let result = result.map_err(|reject| self.token_calls.rejection_for_client(request.uri().path(), reject));
        let reason = result.as_ref().err().map(|reject| reject.reason);
        let (mut forwarded, body_rejected) = match result {
            Ok(forwarded) => (forwarded, false),
            Err(reject) => {
                let resource = self.token_calls.resource();
                let (mut rejection, body_rejected) = rules.reject(reject, resource, request, peer, &mut delivery);
                if self.token_calls.is_page(request.uri().path()) {
                    rejection.response.extensions_mut().insert(NotShared);
                }
                (rejection, body_rejected)
            }
        };
        response::finalize_head(&mut forwarded, peer, &mut delivery);
        if forwarded.is_local() && !rules.back.lets_pass(reason) {
            // Lets other requests run first: hyper would otherwise handle all requests in a row that a client has sent
            // at once, for no backend makes them wait. The status is recorded before: the client may reset its stream
            // meanwhile.
            tokio::task::yield_now().await;
        }
        self.decider.https.set_hsts(delivery.is_https, forwarded.response.headers_mut());
        response::set_cors(&mut forwarded, &self.decider.cors, rules.page.as_ref(), delivery.route.as_deref());
        rules.back.encode(&mut forwarded.response, reason).await;
        // A page is a response with a reason: what a rejection costs its sender does not depend on its form.
        let rejected = delivery.record.rejected.as_ref().map(|reject| reject.reason);
        let response = response::attach_delivery(forwarded, delivery, worker, self.request_timeout);
        Handled { response, rejected, body_rejected }
    }

    /// Rejects a head that can be read in two ways, or not at all. The path is not trusted, so no policy of a route
    /// applies.
    pub fn reject_malformed(&self, head: &RejectedHead, peer: &Peer, worker: &Worker) -> Response<Body> {
        let challenge = self.token_calls.resource().map_or(&REALM, |resource| &resource.challenge);
        let mut response = unreadable::reject_malformed(peer, worker, head, challenge, self.clock.now());
        if let Some(policy) = &self.decider.cors.own {
            policy.apply(head.origin.as_ref(), response.headers_mut());
        }
        response
    }

    async fn respond_in_time(
        &self,
        request: &mut Request<Body>,
        source: &Source<'_>,
        back: Back<'_>,
        delivery: &mut Delivery,
    ) -> Result<Forwarded, Reject> {
        let is_grpc_call = AtomicBool::new(false);
        let started = delivery.started;
        // Pinned: by value, the future would lie here twice, with and without a timeout.
        let mut responding = pin!(self.respond(request, source, back, delivery, &is_grpc_call));
        match self.request_timeout {
            None => responding.await,
            // Boxed: without a timeout, as by default, the future of a request has no room for one.
            Some(time) => Box::pin(request_timeout::within(time, started, responding.as_mut(), &is_grpc_call)).await,
        }
    }

    /// Takes the request's place among those in flight.
    fn reserve(&self, request: &Request<Body>, source: &Source<'_>, delivery: &mut Delivery) -> Result<(), Reject> {
        let is_token_call = || self.decider.routes.is_token_call(request.uri().path());
        let reserved = delivery.reserve(source.address(), is_token_call);
        // A malformed request ends its connection, also while there is no time for others.
        reserved.map_err(|overloaded| self.decider.malformed(request).unwrap_or(overloaded))
    }

    /// Refreshes the session of a browser, and decides again. `decided`: that its token has expired.
    async fn refresh_cookies(
        &self,
        request: &Request<Body>,
        decided: Result<Decision, Reject>,
        context: &mut RequestContext<'_>,
    ) -> (Result<Decision, Reject>, Option<NewCookies>) {
        let Err(expired) = decided else { return (decided, None) };
        let calls = &self.token_calls;
        let checks = calls.checks(&self.decider.authenticator);
        match calls.cookie_refresh.refresh(request, expired, &checks, &calls.broker, context).await {
            Ok((caller, cookies)) => (self.decider.decide_refreshed(caller, context), Some(cookies)),
            Err(reject) => (Err(reject), None),
        }
    }

    /// Does what was decided. Rare cases are boxed, because the future of every request is as large as the largest of
    /// them.
    async fn carry_out(
        &self,
        decision: Decision,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Result<Forwarded, Reject> {
        match decision {
            Decision::Forward { permit, host } => self.forward(permit, host, request, context).await,
            Decision::Own(call) => self.answer(call, request, context).await.map(Forwarded::local_reply),
        }
    }

    /// Answers a call itself.
    async fn answer(
        &self,
        call: OwnCall,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let authenticator = &self.decider.authenticator;
        context.record.is_public = call.is_public();
        match call {
            OwnCall::Refresh => Box::pin(self.token_calls.refresh(request, authenticator, context)).await,
            OwnCall::Revoke { token_id } => {
                Box::pin(self.token_calls.revoke(&token_id, request.headers(), authenticator, context)).await
            }
            OwnCall::Endpoint(Endpoint::Browser(endpoint)) => {
                let sign_in = self.sign_in.as_deref();
                Box::pin(self.token_calls.authorize(endpoint, request, sign_in, authenticator, context)).await
            }
            OwnCall::Endpoint(endpoint) => {
                Box::pin(self.token_calls.endpoint(endpoint, request, authenticator, context)).await
            }
            OwnCall::SignIn(call) => match &self.sign_in {
                Some(sign_in) => Box::pin(sign_in.respond(call, request, &self.decider.routes, context)).await,
                None => Err(Reason::NoRoute.into()),
            },
            OwnCall::Preflight(response) | OwnCall::RedirectToHttps(response) => Ok(*response),
            OwnCall::Keys => Ok(self.token_calls.published_keys()),
            OwnCall::Metadata => Ok(self.token_calls.published_metadata()),
        }
    }

    /// Responds as the route says, or sends the request to its upstream.
    async fn forward(
        &self,
        permit: Permit,
        host: HeaderValue,
        request: &mut Request<Body>,
        context: &mut RequestContext<'_>,
    ) -> Result<Forwarded, Reject> {
        if let Some(fixed) = permit.route().respond.as_deref() {
            context.record.is_public = permit.caller().is_none();
            let mut response = fixed.response();
            if let Some(rules) = &permit.route().response_headers {
                rules.apply(response.headers_mut());
            }
            return Ok(Forwarded::local_reply(response));
        }
        match permit.route().capture {
            // Boxed: few routes have logins.
            Some(capture) => Box::pin(self.forward_login(capture, permit, request, host, context)).await,
            None => self.forwarder.forward(permit, request, host, context).await,
        }
    }

    /// Sends the request to its upstream, and turns the response into a token pair if it is a login.
    async fn forward_login(
        &self,
        capture: Capture,
        permit: Permit,
        request: &mut Request<Body>,
        host: HeaderValue,
        context: &mut RequestContext<'_>,
    ) -> Result<Forwarded, Reject> {
        let broker = &self.token_calls.broker;
        let checks = self.token_calls.checks(&self.decider.authenticator);
        let captured = login_capture::begin(capture, &permit, request, &checks, context)?;
        let captured = captured.bind(request.headers(), &checks, context).await?;
        let forwarded = match self.forwarder.forward(permit, request, host, context).await {
            Ok(forwarded) => forwarded,
            Err(reject) => {
                captured.abandon(reject.reason);
                return Err(reject);
            }
        };
        let limits = login_capture::Limits { max_response: self.max_login_response, begun: context.clock.now() };
        Box::pin(captured.finish(forwarded, &checks, broker, limits, context)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// Each request in flight has one. A step that makes it larger costs memory with every request: box what is rare.
    #[test]
    fn the_future_of_a_request_stays_small() {
        let size = size_of_future(Gateway::handle);
        assert!(size <= 2_784, "{size} bytes");
    }
}

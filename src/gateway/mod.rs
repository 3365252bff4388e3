//! HOT PATH: every request, from its head to its answer.
//!
//! [`Gateway::handle`] cannot fail: it opens the record, asks [`Gateway::answer`], turns a refusal into a response, and sees
//! to it that the record is closed when the last byte is out or the client has gone. `answer` is the pipeline, one line a
//! step, and only uses `?`. The clock is read once, here.

pub mod authorize;
pub mod client;
pub mod csrf;
pub mod decide;
pub mod endpoints;
pub mod forward;
pub mod login_capture;
pub mod oauth;
pub mod route;
pub mod rules;
pub mod streams;
pub mod worker;

use std::mem;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;

use crate::auth::authenticate::Asker;
use crate::auth::bearer;
use crate::auth::keyring::Keyring;
use crate::broker::refresh::RefreshRequest;
use crate::broker::{BODY_LIMIT, Broker, revoke};
use crate::gateway::client::Peer;
use crate::gateway::decide::{Arrival, Decider, Decision};
use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::forward::{Forwarded, Forwarder};
use crate::gateway::oauth::metadata;
use crate::gateway::streams::TokenBound;
use crate::gateway::worker::{Delivery, Worker};
use crate::limits::pace::MinRate;
use crate::limits::rate_limit::{self, RateLimitHeaders, RateLimits};
use crate::protocols::grpc;
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::http::framing::FramingError;
use crate::protocols::http::media_type;
use crate::protocols::http::respond::{self, RejectFormat};
use crate::protocols::websocket::{self, TunnelEnd};
use crate::telemetry::access_log::Record;
use crate::tokens::audit_event::EventContext;
use crate::types::clock::{Clock, UnixTime};
use crate::types::ids::RequestId;
use crate::types::reject::{Reason, Reject, with_causes};
use crate::types::trace::Trace;

/// Everything a request needs. Immutable; a reload makes a new one.
pub struct Gateway {
    pub clock: Arc<dyn Clock>,
    pub decider: Decider,
    pub forwarding: Forwarding,
    /// `[oauth]`
    pub endpoints: Endpoints,
    pub broker: Arc<Broker>,
    pub keyring: Arc<Keyring>,
    pub forwarder: Forwarder,
    /// `[[rate]]` and `[[route.rate]]`
    pub rates: RateLimits,
    /// `login.answer_size`
    pub login_answer_size: u64,
    /// `timeouts.request`
    pub request_time: Option<Duration>,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `limits.upload_rate`
    pub upload: MinRate,
}

impl Gateway {
    /// The request stays where it is until it is sent on: handed down by value, it would lie in every step's future, twice in
    /// each.
    pub async fn handle(&self, request: &mut Request<Body>, peer: &Arc<Peer>, worker: &Arc<Worker>) -> Response<Body> {
        let now = self.clock.now();
        let form = RejectFormat::for_request(request);
        let mut delivery = Box::new(Delivery::open(request, peer, worker, now));
        let has_body = !request.body().is_end_stream();
        // A gRPC call may last, and may have no answer before its client has sent all it has.
        let request_time = self.request_time.filter(|_| !grpc::is_grpc(request.headers()));
        let mut answered = {
            // Pinned: it would lie here twice, with and without a limit.
            let answering = pin!(self.answer(request, peer, worker, &mut delivery, now));
            match request_time {
                None => answering.await,
                Some(time) => tokio::time::timeout(time, answering).await.unwrap_or_else(|_| Err(out_of_time(time))),
            }
        };
        if answered.as_ref().is_ok_and(|forwarded| is_plain_response_to_connect(forwarded, &delivery.record)) {
            answered = Err(Reject::new(Reason::ProtocolRefused, "an answer, but no WebSocket"));
        }
        if answered.is_err() {
            // A refusal waits for nobody, so hyper would answer a row of them at one go. Who is refused lets the others go first.
            tokio::task::yield_now().await;
        }
        let Forwarded { response, lease, tunnel, held, said: _ } = answered.unwrap_or_else(|refusal| {
            let mut response = respond::reject(&refusal, self.challenge(), delivery.record.request_id, form);
            if has_body && delivery.record.version != Version::HTTP_2 && refusal.reason.leaves_body_unread() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                if refusal.reason.is_too_much() {
                    response.extensions_mut().insert(respond::BodyLeft);
                }
            }
            // Over HTTP/1, its answer says so.
            if matches!(refusal.reason, Reason::BadHost | Reason::BadFraming) {
                peer.ends();
            }
            delivery.record.refused = Some(refusal);
            Forwarded::own(response)
        });
        // What answers HEAD has no body, also if it is ours: HTTP/2 would send it.
        let mut response =
            if delivery.record.method == Method::HEAD { response.map(|_| Body::empty()) } else { response };
        if peer.is_at_last_request() && delivery.record.version != Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let response = match delivery.record.told.take() {
            None => response,
            Some(told) => told.append_to(response),
        };
        // What is refused is no success, whatever its form needs.
        let refused = delivery.record.refused.as_ref().map(|refusal| refusal.reason.status());
        delivery.record.status = refused.unwrap_or(response.status()).as_u16();
        delivery.lease = lease;
        match tunnel {
            None => {
                delivery.held = held;
                let may_last = delivery.record.refused.is_some() || is_stream(&response);
                let ends = request_time.filter(|_| !may_last).map(|time| delivery.started + time);
                response.map(|body| body.with_deadline(ends).with_observer(delivery))
            }
            Some(tunnel) => {
                let mut live = worker.streams.open_tunnel(held.as_ref().and_then(TokenBound::known));
                tokio::spawn(async move {
                    let over = tunnel.run(&mut delivery.record.sent, live.ended()).await;
                    delivery.record.complete = over == Some(TunnelEnd::Closed);
                    delivery.record.ended = over.and_then(TunnelEnd::close_reason);
                });
                response
            }
        }
    }

    /// Records a request whose head hyper could not read. It has answered by itself, without a word.
    pub fn record_malformed(&self, peer: &Peer, worker: &Worker, error: &hyper::Error) {
        let reason = if error.is_parse_too_large() { Reason::HeadTooLarge } else { Reason::BadFraming };
        let request_id = worker.request_ids.next();
        self.record_connection_end(request_id, peer, worker, Reject::new(reason, with_causes(error)), 0);
    }

    /// Answers a request whose head has no one reading, and ends the connection.
    pub fn reject_malformed(&self, peer: &Peer, worker: &Worker, fault: FramingError) -> Response<Body> {
        let refusal = Reject::new(fault.reason, fault.message);
        let request_id = worker.request_ids.next();
        let mut response = respond::reject(&refusal, self.challenge(), request_id, RejectFormat::Json);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        self.record_connection_end(request_id, peer, worker, refusal, response.body().size_hint().lower());
        response
    }

    /// Records an HTTP/2 connection that was ended for what it sent beside its requests.
    pub fn record_flood(&self, peer: &Peer, worker: &Worker, error: &hyper::Error) {
        let refusal = Reject::new(Reason::Http2Flood, with_causes(error));
        self.record_connection_end(worker.request_ids.next(), peer, worker, refusal, 0);
    }

    /// Records what belongs to no request.
    fn record_connection_end(&self, request_id: RequestId, peer: &Peer, worker: &Worker, refusal: Reject, sent: u64) {
        let record = Record {
            request_id,
            time: self.clock.now(),
            client: Some(peer.address.ip()),
            // A token that no method is.
            method: Method::from_bytes(b"-").unwrap_or_default(),
            uri: Uri::from_static("-"),
            status: refusal.reason.status().as_u16(),
            sent,
            complete: true,
            refused: Some(refusal),
            ..Record::default()
        };
        worker.over(&record);
    }

    async fn answer(
        &self,
        request: &mut Request<Body>,
        peer: &Peer,
        worker: &Worker,
        delivery: &mut Delivery,
        now: UnixTime,
    ) -> Result<Forwarded, Reject> {
        let record = &mut delivery.record;
        websocket::http2::translate(request)?;
        let believed = peer.trusts_forwarded.then_some(&self.forwarding);
        let spoken_for = believed.and_then(|forwarding| forwarding.origin(&peer.origin, request.headers()));
        let origin = spoken_for.as_deref().unwrap_or(&peer.origin);
        record.client = Some(origin.address);
        let is_on_tokens = || self.decider.routes.is_token_call(request.uri().path());
        let place = worker.concurrency.acquire(worker.metrics.under_way(), origin.address, is_on_tokens);
        delivery.reserved = place.inspect_err(|_| {
            // However slowly it lets itself be told so: what is kept for others is not for the crowd that is refused.
            delivery.rejected_early = true;
            worker.metrics.ended.one();
        })?;
        // A proxy that is trusted brings the requests of many hosts over one connection.
        let sni = peer.sni.as_ref().filter(|_| spoken_for.is_none());
        let arrival = Arrival { asker: asker(worker, origin.address), origin, sni };
        let verdict = self.decider.decide(request, arrival, record, now).await;
        if !self.rates.is_empty() {
            self.take_from_rates(&verdict, record, origin.address, now)?;
        }
        match verdict? {
            // Boxed, as the rare cases: every request's future is as large as the largest of these arms.
            Decision::Forward { permit, host } => {
                let captured = login_capture::begin(&permit, request, &self.broker.throttle, origin.address, now)?;
                let on = (worker.number, &*worker.metrics, &worker.streams);
                let forwarded = self.forwarder.forward(permit, request, host, origin, record, on).await?;
                match captured {
                    None => Ok(forwarded),
                    Some(captured) => {
                        let known = self.decider.authenticator.revocations.sequence();
                        let limits = (self.login_answer_size, known);
                        Box::pin(captured.finish(forwarded, &self.broker, limits, record, now)).await
                    }
                }
            }
            Decision::Refresh => {
                let call = self.refresh(request, arrival.asker, record, now);
                Box::pin(self.counted(call, origin.address, now)).await
            }
            Decision::Revoke { parameter } => {
                let call = self.revoke(&parameter, request.headers(), arrival.asker, record, now);
                Box::pin(self.counted(call, origin.address, now)).await
            }
            Decision::Endpoint(endpoint) => {
                Box::pin(self.endpoint(endpoint, request, arrival.asker, record, now)).await.map(Forwarded::own)
            }
            Decision::Keys => Ok(Forwarded::own(self.published_keys())),
            Decision::Metadata => Ok(Forwarded::own(self.published_metadata())),
        }
    }

    /// Counts a request to a backend, also one that is refused for its token: who is not let in must not ask for ever. Calls
    /// that the gateway answers itself have `[throttle]`.
    fn take_from_rates(
        &self,
        verdict: &Result<Decision, Reject>,
        record: &mut Record,
        address: IpAddr,
        now: UnixTime,
    ) -> Result<(), Reject> {
        if !matches!(verdict, Ok(Decision::Forward { .. }) | Err(_)) {
            return Ok(());
        }
        let subject = record.caller.as_ref().map(|token| (&*token.issuer, token.subject.as_str()));
        let of_route = record.route.as_ref().map_or(&[][..], |route| &route.rates);
        let mut told = Box::<RateLimitHeaders>::default();
        let taken = self.rates.take(of_route, &rate_limit::Client { address, subject }, &mut told, now);
        record.told = (!told.is_empty()).then_some(told);
        taken
    }

    /// A call on tokens, counted for the address that it comes from.
    async fn counted(
        &self,
        call: impl Future<Output = Result<Response<Body>, Reject>>,
        address: IpAddr,
        now: UnixTime,
    ) -> Result<Forwarded, Reject> {
        self.broker.throttle.count_call(address, now)?;
        let answer = call.await;
        self.broker.throttle.count_outcome(&answer, address, now);
        answer.map(Forwarded::own)
    }

    /// `POST /user/refresh`
    async fn refresh(
        &self,
        request: &mut Request<Body>,
        asker: Asker<'_>,
        record: &mut Record,
        now: UnixTime,
    ) -> Result<Response<Body>, Reject> {
        let content = self.read(request).await?;
        let refresh = RefreshRequest::read(request.headers(), &content)?;
        let idle = self.broker.settings.lifetimes.idle;
        let bearer = self.decider.authenticator.authenticate_refresh(request.headers(), idle, asker, now).await?;
        let bearer = Arc::new(bearer);
        record.caller = Some(bearer.clone());
        let pair =
            self.broker.refresh(refresh, &bearer, EventContext::new(now, asker.address, record.request_id)).await?;
        Ok(respond::json(StatusCode::OK, &pair))
    }

    /// `DELETE /token/{tokenId}`
    async fn revoke(
        &self,
        parameter: &str,
        headers: &HeaderMap,
        asker: Asker<'_>,
        record: &mut Record,
        now: UnixTime,
    ) -> Result<Response<Body>, Reject> {
        let family = revoke::named_family(parameter);
        record.token_id = family;
        let authenticator = &self.decider.authenticator;
        let caller = authenticator.authenticate(bearer::find(headers, authenticator.token_size)?, asker, now).await?;
        record.caller = Some(caller.token().clone());
        self.broker.revoke(&caller, family, EventContext::new(now, asker.address, record.request_id)).await?;
        Ok(respond::json(StatusCode::OK, &serde_json::json!({ "success": true })))
    }

    /// One of `[oauth]`
    async fn endpoint(
        &self,
        endpoint: Endpoint,
        request: &mut Request<Body>,
        asker: Asker<'_>,
        record: &mut Record,
        now: UnixTime,
    ) -> Result<Response<Body>, Reject> {
        if let (Endpoint::ProtectedResource, Some(resource)) = (endpoint, &self.endpoints.resource) {
            return Ok(respond::public_document(resource.document.clone()));
        }
        let throttle = &self.broker.throttle;
        // Services that introspect ask for all of their clients, and show a token of their own.
        if endpoint != Endpoint::Introspect {
            throttle.check_failures(asker.address, now)?;
            throttle.count_call(asker.address, now)?;
        }
        let content = self.read(request).await?;
        let (broker, authenticator) = (&self.broker, &self.decider.authenticator);
        let call = oauth::Call { broker, authenticator, asker, headers: request.headers(), now };
        let answer = call.answer(endpoint, &content, record).await;
        throttle.count_outcome(&answer, asker.address, now);
        answer
    }

    /// The body of a call that is answered here.
    async fn read(&self, request: &mut Request<Body>) -> Result<Bytes, Reject> {
        let paced = mem::take(request.body_mut()).with_idle_timeout(self.body_idle).with_min_rate(self.upload);
        body::read(paced, BODY_LIMIT).await
    }

    /// What `WWW-Authenticate` begins with.
    fn challenge(&self) -> &HeaderValue {
        self.endpoints.resource.as_ref().map_or(&respond::REALM, |resource| &resource.challenge)
    }

    /// `GET /.well-known/jwks.json`: public, and cacheable for less than a key is published ahead.
    fn published_keys(&self) -> Response<Body> {
        let keys = self.keyring.keys();
        respond::public_json(&keys.own().published, keys.own().max_age)
    }

    /// `GET /.well-known/oauth-authorization-server`: public.
    fn published_metadata(&self) -> Response<Body> {
        let metadata = metadata::of(&self.broker.settings.issuer, &self.endpoints);
        respond::public_json(&metadata, self.keyring.keys().own().max_age)
    }
}

fn out_of_time(time: Duration) -> Reject {
    Reject::new(Reason::RequestTimeout, format!("no answer within {}ms", time.as_millis()))
}

/// What is meant to last.
fn is_stream(response: &Response<Body>) -> bool {
    grpc::is_grpc(response.headers()) || media_type::is_event_stream(response.headers())
}

fn asker(worker: &Worker, address: IpAddr) -> Asker<'_> {
    Asker {
        address,
        failures: &worker.failures,
        signature_queue: &worker.signature_queue,
        metrics: &worker.metrics,
        trace: Trace::OFF,
    }
}

/// To a client that sent CONNECT, any 2xx means that its tunnel is open (RFC 9110 section 9.3.6).
fn is_plain_response_to_connect(forwarded: &Forwarded, record: &Record) -> bool {
    record.method == Method::CONNECT && forwarded.tunnel.is_none() && forwarded.response.status().is_success()
}

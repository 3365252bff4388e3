//! The last steps of every request: a rejection becomes a response, the head is completed, the body starts.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};

use crate::auth::bearer;
use crate::auth::proofs::ProofRule;
use crate::gateway::back::Back;
use crate::gateway::client::Peer;
use crate::gateway::cors::{Cors, NotShared};
use crate::gateway::delivery::Delivery;
use crate::gateway::forward::Forwarded;
use crate::gateway::protected_resource::ProtectedResource;
use crate::gateway::route::Route;
use crate::gateway::streams::TokenBound;
use crate::gateway::worker::Worker;
use crate::protocols::http::body::Body;
use crate::protocols::http::challenges::{Challenges, REALM};
use crate::protocols::http::media_type;
use crate::protocols::http::respond::{self, RejectFormat};
use crate::protocols::websocket::{Tunnel, TunnelEnd};
use crate::telemetry::access_log::{Broken, Record};
use crate::types::reject::{Reason, Reject};
use crate::upstream::BrokenResponses;

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What the head of the request says about its response. Read before the request is consumed.
pub(super) struct ResponseRules<'g> {
    pub(super) back: Back<'g>,
    /// The origin of the page that sent the request.
    pub(super) page: Option<HeaderValue>,
}

impl ResponseRules<'_> {
    /// The response to a rejected request. Also returns true if the client's body counts as too much. `resource`: that
    /// of routes without one of their own.
    pub(super) fn reject(
        &self,
        reject: Reject,
        resource: Option<&ProtectedResource>,
        request: &Request<Body>,
        peer: &Peer,
        delivery: &mut Delivery,
    ) -> (Forwarded, bool) {
        let route = delivery.route.clone();
        let has_unread_body = delivery.has_unread_body(request);
        let challenges = challenges(route.as_deref(), request.headers(), resource);
        let mut rejected = self.respond(reject, challenges, peer, delivery, has_unread_body);
        self.show_maintenance(&mut rejected.0.response, delivery);
        rejected
    }

    /// `has_unread_body`: the response closes the connection, so that the rest of the body is not read as a request.
    fn respond(
        &self,
        reject: Reject,
        challenges: Challenges<'_>,
        peer: &Peer,
        delivery: &mut Delivery,
        has_unread_body: bool,
    ) -> (Forwarded, bool) {
        let record = &mut delivery.record;
        let mut response = respond::reject(&reject, challenges, record.request_id, self.back.format());
        let mut body_rejected = false;
        if has_unread_body && record.version != Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, CLOSE);
            body_rejected = reject.reason.is_limit_exceeded();
        }
        // HTTP/2 has no `Connection: close`: the connection sends GOAWAY. Over HTTP/1, `respond::reject` has set the
        // header.
        if matches!(reject.reason, Reason::BadHost | Reason::MalformedFraming) {
            peer.ends();
        }
        record.rejected = Some(reject);
        (Forwarded::local_reply(response), body_rejected)
    }

    /// Puts the page of `[maintenance]` in the place of JSON. Clients that ask for a format of errors get that one.
    fn show_maintenance(&self, response: &mut Response<Body>, delivery: &Delivery) {
        let is_maintenance = |reject: &Reject| reject.reason == Reason::Maintenance;
        if self.back.format() != RejectFormat::Json || !delivery.record.rejected.as_ref().is_some_and(is_maintenance) {
            return;
        }
        let maintenance = delivery.route.as_ref().and_then(|route| route.maintenance.as_ref());
        if let Some(page) = maintenance.and_then(|maintenance| maintenance.page.as_ref()) {
            page.replace(response);
        }
    }
}

/// The schemes that a route accepts, and how a client gets a token for it.
fn challenges<'c>(
    route: Option<&'c Route>,
    headers: &HeaderMap,
    resource: Option<&'c ProtectedResource>,
) -> Challenges<'c> {
    let tried_dpop = || headers.get(header::AUTHORIZATION).is_some_and(bearer::is_dpop);
    let resource = route.and_then(|route| route.resource.as_deref()).or(resource);
    let challenge = resource.map_or(&REALM, |resource| &resource.challenge);
    let challenges = match route.map_or(ProofRule::IfBound, |route| route.proof) {
        ProofRule::Off => Challenges::bearer(challenge),
        ProofRule::IfBound => Challenges::bearer(challenge).and_dpop(tried_dpop()),
        ProofRule::Required => Challenges::only_dpop(),
    };
    // Clients of OAuth ask for these scopes at once. Without metadata, none would know where.
    let scope = resource.and(route).map(Route::needed_scope).unwrap_or_default();
    challenges.with_scope(scope)
}

/// Rejects a response that a client of CONNECT would read as an open tunnel (RFC 9110 section 9.3.6: any 2xx).
pub(super) fn check_connect(forwarded: &Forwarded, record: &Record) -> Result<(), Reject> {
    let is_unambiguous = forwarded.tunnel.is_some() || !forwarded.response.status().is_success();
    if record.method == Method::CONNECT && !is_unambiguous {
        return Err(Reject::new(Reason::ProtocolNotSupported, "a response, but no WebSocket"));
    }
    Ok(())
}

/// Completes the head of the response and records its status.
pub(super) fn finalize_head(forwarded: &mut Forwarded, peer: &Peer, delivery: &mut Delivery) {
    let record = &mut delivery.record;
    if record.method == Method::HEAD {
        // Also for our own responses: HTTP/2 would send the body.
        *forwarded.response.body_mut() = Body::empty();
    }
    if peer.must_close() && record.version != Version::HTTP_2 {
        forwarded.response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    if let Some(headers) = delivery.rate_limit_headers.take() {
        headers.append_to(forwarded.response.headers_mut());
    }
    // A rejection is recorded by its own status: a gRPC rejection is sent with 200.
    let rejected = record.rejected.as_ref().map(|reject| reject.reason.status());
    record.status = rejected.unwrap_or(forwarded.response.status()).as_u16();
}

/// Sets the CORS fields. `page`: the origin of the page that sent the request.
pub(super) fn set_cors(forwarded: &mut Forwarded, cors: &Cors, page: Option<&HeaderValue>, route: Option<&Route>) {
    let policy = route.map_or(cors.own.as_deref(), |route| route.cors.as_deref());
    let is_from_backend = forwarded.token_bound.is_some();
    let Some(policy) = policy else { return };
    if forwarded.response.extensions().get::<NotShared>().is_some() {
        return;
    }
    // Browsers do not apply CORS to WebSockets.
    if forwarded.tunnel.is_some() || is_from_backend && route.is_some_and(|route| route.preflight) {
        return;
    }
    let headers = forwarded.response.headers_mut();
    // A preflight and a public document have their own fields already.
    if is_from_backend || !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        policy.apply(page, headers);
    }
}

/// Hands the delivery to whatever carries the body: the response, or the task of a tunnel.
pub(super) fn attach_delivery(
    forwarded: Forwarded,
    mut delivery: Box<Delivery>,
    worker: &Arc<Worker>,
    timeout: Option<Duration>,
) -> Response<Body> {
    let Forwarded { mut response, upstream_connection, tunnel, broken_responses, token_bound, is_grpc_call, login: _ } =
        forwarded;
    delivery.head_complete(token_bound.is_some());
    delivery.upstream_connection = upstream_connection;
    match tunnel {
        None => {
            delivery.token_bound = token_bound;
            let is_rejected = delivery.record.rejected.is_some();
            let may_last = may_last(is_rejected, is_grpc_call, response.headers());
            let deadline = if may_last { None } else { timeout.map(|time| delivery.started + time) };
            response.body_mut().set_deadline(deadline);
            response.body_mut().set_observer(delivery);
            response
        }
        Some(tunnel) => {
            spawn_tunnel(tunnel, broken_responses, token_bound, delivery, worker);
            response
        }
    }
}

/// Returns true for a body without a deadline: a rejection, also if `timeouts.request` is its cause, and a stream.
fn may_last(is_rejected: bool, is_grpc_call: bool, headers: &HeaderMap) -> bool {
    is_rejected || is_grpc_call || media_type::is_event_stream(headers)
}

/// Carries a WebSocket until one side closes it or its token ends.
fn spawn_tunnel(
    tunnel: Tunnel,
    broken_responses: Option<BrokenResponses>,
    token_bound: Option<TokenBound>,
    mut delivery: Box<Delivery>,
    worker: &Arc<Worker>,
) {
    let held = token_bound.as_ref().map(|bound| bound.held().clone()).unwrap_or_default();
    let mut open = worker.streams.open_tunnel(&held, &delivery.record);
    delivery.record.detach();
    tokio::spawn(async move {
        let record = &mut delivery.record;
        let end = tunnel.run(&mut record.sent, &mut record.received, open.ended()).await;
        delivery.record.complete = end == Some(TunnelEnd::Closed);
        delivery.record.ended = end.and_then(TunnelEnd::close_reason);
        if end == Some(TunnelEnd::Broken) {
            let cause = Reject::new(Reason::UpstreamBroken, "the backend ended the WebSocket without a close frame");
            delivery.record.broken = Some(Box::new(Broken { cause, is_of_server: true }));
            broken_responses.iter().for_each(BrokenResponses::count);
        }
    });
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn only_rejections_and_streams_have_no_deadline() {
        for (is_rejected, is_grpc_call, media_type, expected) in [
            (false, false, "application/json", false),
            (true, false, "application/json", true),
            (false, true, "application/json", true),
            (false, false, "text/event-stream", true),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))]);
            assert_eq!(may_last(is_rejected, is_grpc_call, &headers), expected, "{is_rejected} {is_grpc_call}");
        }
    }

    #[test]
    fn only_connect_without_a_tunnel_has_no_2xx() {
        for (method, status, is_rejected) in [
            (Method::CONNECT, StatusCode::OK, true),
            (Method::CONNECT, StatusCode::NO_CONTENT, true),
            (Method::CONNECT, StatusCode::NOT_FOUND, false),
            (Method::GET, StatusCode::OK, false),
        ] {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            let record = Record { method: method.clone(), ..Record::default() };
            let checked = check_connect(&Forwarded::local_reply(response), &record);
            assert_eq!(checked.is_err(), is_rejected, "{method} {status}");
        }
    }
}

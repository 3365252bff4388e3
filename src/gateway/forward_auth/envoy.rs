//! The dialect of Envoy (`ext_authz_grpc`): a call of gRPC has the request in a message, and gets a message.
//!
//! Only [`allow`] makes a message that allows a request.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};

use super::call::{With, describe};
use super::envoy_request::CheckRequest;
use super::envoy_response;
use super::names::{Names, set_identity};
use crate::gateway::authorize::Permit;
use crate::gateway::delivery::Delivery;
use crate::protocols::grpc::{self, BadMessage};
use crate::protocols::http::body::Body;
use crate::protocols::http::forwarded::ForwardedClient;
use crate::telemetry::access_log::Record;
use crate::types::reject::{Reason, Reject};

/// A response with which Envoy forwards the request: its message.
#[derive(Clone)]
struct Allowed(Vec<u8>);

/// Turns a call of gRPC, and its record, into the request that its message is about.
pub(super) async fn ask(
    call: &mut Request<Body>,
    with: With<'_>,
    delivery: &mut Delivery,
) -> Result<Box<ForwardedClient>, Reject> {
    let body = with.token_calls.read_in_time(call, with.decider.max_check_size()).await.map_err(as_head)?;
    delivery.record.received = body.len() as u64;
    delivery.record.time = with.clock.now();
    let message = grpc::only_message(&body).map_err(|bad| match bad {
        BadMessage::Compressed => Reject::from(Reason::CompressedCall),
        BadMessage::NotOne => Reject::new(Reason::BadAuthCall, "the body is not one message"),
    })?;
    let check = CheckRequest::read(message, with.decider.headers)?;
    let client = with.forwarding.client_behind(check.source, check.scheme, &check.headers);
    let client = client.map_err(|detail| Reject::new(Reason::BadAuthCall, detail))?;
    *call.headers_mut() = check.headers;
    check.question.replace(call);
    describe(call, &client, delivery);
    with.decider.check_header_list(call)?;
    Ok(client)
}

/// Makes the response that allows a request. `sent`, `left`: the headers of the client, and what the backend gets of
/// them. Forged ones are no reason for a rejection: Envoy removes what the message names.
pub(super) fn allow(
    names: &Names,
    permit: &Permit,
    sent: &HeaderMap,
    left: &HeaderMap,
    certificate: Option<Vec<(HeaderName, HeaderValue)>>,
    record: &Record,
) -> Result<Response<Body>, Reject> {
    let mut set = HeaderMap::new();
    // What a token is taken from. A subprotocol stays: a browser fails without a choice of the server.
    for name in [header::AUTHORIZATION, header::COOKIE] {
        if let Some(value) = left.get(&name)
            && left.get_all(&name) != sent.get_all(&name)
        {
            // Texts of Protocol Buffers are UTF-8.
            value.to_str().map_err(|_| Reject::new(Reason::BadAuthCall, format!("{name} is not ASCII")))?;
            set.insert(name, value.clone());
        }
    }
    set_identity(&mut set, permit, certificate, record);
    let mut removed = names.removed(&set, sent, left);
    removed.retain(|name| **name != header::SEC_WEBSOCKET_PROTOCOL);
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Allowed(envoy_response::allowed(set.iter(), &removed)));
    Ok(response)
}

/// Encodes a response as a message of gRPC. `rejected`: why the request was rejected.
pub async fn encode(mut response: Response<Body>, rejected: Option<Reason>) -> Response<Body> {
    match (response.extensions_mut().remove(), rejected) {
        (Some(Allowed(message)), None) => grpc::response(&message),
        (_, Some(reason @ Reason::CompressedCall)) => grpc::unimplemented(reason),
        _ => grpc::response(&envoy_response::denied(response).await),
    }
}

/// The message has mostly the head of the request, and not its body.
fn as_head(reject: Reject) -> Reject {
    match reject.reason {
        Reason::BodyTooLarge => Reject::new(Reason::HeadTooLarge, reject.detail),
        _ => reject,
    }
}

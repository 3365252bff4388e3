//! Records for what never became a request: malformed heads and HTTP/2 floods.

use http::{HeaderValue, Method, Response, Uri, header};
use http_body::Body as _;

use crate::gateway::client::Peer;
use crate::gateway::worker::Worker;
use crate::protocols::http::body::Body;
use crate::protocols::http::challenges::Challenges;
use crate::protocols::http::framing::RejectedHead;
use crate::protocols::http::respond::{self, RejectFormat};
use crate::telemetry::access_log::Record;
use crate::types::clock::UnixTime;
use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject, with_causes};

/// Records a request with a head that hyper could not read. hyper has already sent a response without a body. No such
/// head is known: `protocols/http/framing` checks each one before.
pub fn record_malformed(peer: &Peer, worker: &Worker, error: &hyper::Error, now: UnixTime) {
    let reason = if error.is_parse_too_large() { Reason::HeadTooLarge } else { Reason::MalformedFraming };
    worker.finish(&rejected(peer, worker, Reject::new(reason, with_causes(error)), now));
}

/// Rejects a request with a head that can be read in two ways, or not at all. The connection ends.
pub fn reject_malformed(
    peer: &Peer,
    worker: &Worker,
    head: &RejectedHead,
    challenge: &HeaderValue,
    now: UnixTime,
) -> Response<Body> {
    let reject = Reject::new(head.fault.reason, head.fault.message).of_limit(head.fault.limit);
    let reject = if head.line.is_some() { reject.described(head.fault.message.to_owned()) } else { reject };
    let request_id = worker.request_ids.next();
    let mut response = respond::reject(&reject, Challenges::bearer(challenge), request_id, RejectFormat::Json);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let sent = response.body().size_hint().lower();
    let mut record = Record { request_id, sent, ..rejected(peer, worker, reject, now) };
    if let Some((method, uri)) = &head.line {
        (record.method, record.uri) = (method.clone(), uri.clone());
    }
    worker.finish(&record);
    response
}

/// Records an HTTP/2 connection that was closed because of an HTTP/2 flood. `limit`: see [`Reject::limit`].
pub fn record_flood(peer: &Peer, worker: &Worker, error: &hyper::Error, limit: Option<Limit>, now: UnixTime) {
    let reject = Reject::new(Reason::Http2Flood, with_causes(error)).of_limit(limit);
    worker.finish(&rejected(peer, worker, reject, now));
}

fn rejected(peer: &Peer, worker: &Worker, reject: Reject, now: UnixTime) -> Record {
    Record {
        request_id: worker.request_ids.next(),
        time: now,
        client: Some(peer.address.ip()),
        // `-` is a valid token for a method, and no method has this name.
        method: Method::from_bytes(b"-").unwrap_or_default(),
        uri: Uri::from_static("-"),
        tls: peer.tls,
        status: reject.reason.status().as_u16(),
        complete: true,
        rejected: Some(reject),
        ..Record::default()
    }
}

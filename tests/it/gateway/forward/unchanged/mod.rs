//! The gateway forwards requests and responses unchanged, in all four combinations of HTTP/1.1 and HTTP/2, except for
//! the changes that `deploy/messages.md` lists.

pub mod exchanges;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use exchanges::{Exchange, FRAMING, IDENTITY, SET, exchanges, fields};

use crate::support::connection::{self, HttpConnection};
use crate::support::{Backend, Gateway};

/// A request as the backend received it.
pub struct Arrived {
    method: Method,
    target: String,
    host: String,
    pub headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// A backend that sends the prepared response and records the request.
#[derive(Default)]
pub struct RecordingBackend {
    response: Mutex<Option<Response<connection::Body>>>,
    pub arrived: Mutex<Option<Arrived>>,
}

impl RecordingBackend {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<connection::Body> {
        let (head, body) = request.into_parts();
        let collected = body.collect().await.expect("a whole body");
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let host = head.uri.authority().map(ToString::to_string);
        let field = || head.headers.get("host").and_then(|host| host.to_str().ok()).map(str::to_owned);
        *self.arrived.lock().expect("unpoisoned") = Some(Arrived {
            method: head.method,
            target: head.uri.path_and_query().expect("a path").to_string(),
            host: host.or_else(field).expect("a host"),
            headers: head.headers,
            body: collected.to_bytes(),
            trailers,
        });
        self.response.lock().expect("unpoisoned").take().expect("one prepared response for each request")
    }

    /// Starts a backend with this protocol, and a gateway in front of it.
    pub async fn with_gateway(version: Version) -> (Arc<RecordingBackend>, Backend, Gateway) {
        let recorder = Arc::new(RecordingBackend::default());
        let shared = recorder.clone();
        let backend = Backend::start(version, move |request| shared.clone().respond(request)).await;
        let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), backend.protocol()));
        (recorder, backend, gateway)
    }

    /// Sets the next response.
    pub fn prepare(&self, exchange: &Exchange) {
        let mut response = Response::new(exchange.response.to_body());
        *response.status_mut() = StatusCode::from_u16(exchange.status).expect("a status");
        *response.headers_mut() = exchange.response.header_map();
        response.headers_mut().insert("date", HeaderValue::from_static("Sat, 21 Nov 2026 05:00:00 GMT"));
        *self.response.lock().expect("unpoisoned") = Some(response);
    }
}

/// Sends the request, and compares what the backend and the client receive with what was sent.
async fn assert_unchanged(
    exchange: &Exchange,
    connection: &mut HttpConnection,
    token: &str,
    recorder: &RecordingBackend,
    backend: Version,
    name: &str,
) {
    recorder.prepare(exchange);
    let mut request = Request::builder().method(exchange.method).uri(exchange.target).body(exchange.request.to_body());
    let request = request.as_mut().expect("a request");
    *request.headers_mut() = exchange.request.header_map();
    let bearer = format!("Bearer {token}");
    request.headers_mut().insert("authorization", bearer.parse().expect("a value"));
    let request = std::mem::replace(request, Request::new(connection::empty()));
    let response = connection.send(request).await;
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap_or_else(|error| panic!("{name}: {error}"));

    // The request.
    let arrived = recorder.arrived.lock().expect("unpoisoned").take().unwrap_or_else(|| panic!("{name}: {head:?}"));
    assert_eq!((arrived.method.as_str(), arrived.target.as_str()), (exchange.method, exchange.target), "{name}");
    assert_eq!(arrived.host, "gateway.test", "{name}");
    let mut sent = exchange.request.header_map();
    sent.insert("authorization", bearer.parse().expect("a value"));
    let added = [&SET[..], &IDENTITY, &FRAMING].concat();
    assert_eq!(fields(&arrived.headers, &added), fields(&sent, &FRAMING), "{name}");
    let set_by_gateway = arrived.headers.keys().filter(|name| [&SET[..], &IDENTITY].concat().contains(&name.as_str()));
    assert_eq!(set_by_gateway.count(), SET.len() + IDENTITY.len(), "{name}: {:?}", arrived.headers);
    assert_eq!(arrived.headers.get("te"), sent.get("te"), "{name}");
    assert!(arrived.body == exchange.request.body, "{name}: {} bytes arrived", arrived.body.len());
    let length = arrived.headers.get("content-length").map(|length| length.to_str().expect("text").to_owned());
    let chunked = arrived.headers.get("transfer-encoding").is_some();
    if exchange.request.streamed {
        assert_eq!((length, chunked), (None, backend == Version::HTTP_11), "{name}");
    } else {
        assert!(length.is_none_or(|length| length == exchange.request.body.len().to_string()) && !chunked, "{name}");
    }
    assert_eq!(fields(&arrived.trailers, &[]), fields(&exchange.request.trailer_map(), &[]), "{name}: request");

    // The response.
    assert_eq!(head.status, exchange.status, "{name}");
    let prepared = exchange.response.header_map();
    let framing = ["content-length", "transfer-encoding"];
    assert_eq!(fields(&head.headers, &[&framing[..], &["date"]].concat()), fields(&prepared, &framing), "{name}");
    assert_eq!(head.headers["date"], "Sat, 21 Nov 2026 05:00:00 GMT", "{name}");
    let length = head.headers.get("content-length").cloned();
    match prepared.get("content-length") {
        Some(prepared) => assert_eq!(length.as_ref(), Some(prepared), "{name}"),
        None if exchange.response.streamed => assert_eq!(length, None, "{name}"),
        None => assert!(length.is_none_or(|length| length == exchange.response.body.len().to_string()), "{name}"),
    }
    let trailers = collected.trailers().cloned().unwrap_or_default();
    assert_eq!(fields(&trailers, &[]), fields(&exchange.response.trailer_map(), &[]), "{name}: response");
    let body = collected.to_bytes();
    assert!(body == exchange.response.body, "{name}: {} bytes came", body.len());
}

#[tokio::test]
async fn messages_pass_unchanged_in_all_protocol_combinations() {
    for backend_version in [Version::HTTP_11, Version::HTTP_2] {
        let (recorder, backend, gateway) = RecordingBackend::with_gateway(backend_version).await;
        let pair = gateway.issue("alice", "bears:keep").await;
        for (number, client_version) in [Version::HTTP_11, Version::HTTP_2].into_iter().enumerate() {
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            for exchange in exchanges() {
                let name = format!("{} ({client_version:?} to {backend_version:?})", exchange.name);
                assert_unchanged(&exchange, &mut connection, &pair.access, &recorder, backend_version, &name).await;
            }
            assert!(backend.connections() <= number + 1, "one connection is enough for all requests");
        }
        let lines = gateway.log_lines(2 * exchanges().len()).await;
        let incomplete: Vec<_> = lines.iter().filter(|line| line["complete"] == false).collect();
        assert!(incomplete.is_empty(), "{incomplete:?}");
    }
}

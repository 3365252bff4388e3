//! Responses, uploads and requests in flight with a token that ends: an event stream ends cleanly, anything else is
//! aborted.

use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::*;
use crate::support::TokenPair;
use crate::support::connection::{self, HttpConnection, next_chunk};
use crate::support::wait::eventually;

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A backend that sends one chunk of this content type, and then nothing more.
pub fn backend(kind: &'static str) -> ScriptedBackend {
    ScriptedBackend::start(move |mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n");
        wire.send(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
        wire.read_to_end().await;
    })
}

fn request(method: Method, path: &str, token: &str, body: connection::Body) -> Request<connection::Body> {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    request.body(body).expect("a request")
}

pub fn get(path: &str, token: &str) -> Request<connection::Body> {
    request(Method::GET, path, token, connection::empty())
}

/// A response after its first chunk. No more chunks follow.
struct OpenStream {
    gateway: Gateway,
    pair: TokenPair,
    connection: HttpConnection,
    response: Incoming,
    _backend: ScriptedBackend,
}

impl OpenStream {
    async fn over(version: Version, kind: &'static str) -> OpenStream {
        let backend = backend(kind);
        let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), ""));
        let pair = gateway.issue("alice", "").await;
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let mut response = connection.send(get("/stream", &pair.access)).await.into_body();
        assert_eq!(next_chunk(&mut response).await.expect("a chunk"), "data: 1\n\n");
        OpenStream { gateway, pair, connection, response, _backend: backend }
    }
}

async fn revoke(gateway: &Gateway, pair: &TokenPair) {
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
}

#[tokio::test]
async fn an_event_stream_ends_with_its_token_and_cannot_reconnect() {
    for version in VERSIONS {
        let mut stream = OpenStream::over(version, "text/event-stream; charset=utf-8").await;
        stream.gateway.wait_for_metric("streams_opened_total", 1).await;
        stream.gateway.advance(LIFETIME);
        assert!(within_a_second(next_chunk(&mut stream.response)).await.is_none(), "a clean end, {version:?}");
        assert_eq!(stream.connection.send(get("/stream", &stream.pair.access)).await.status(), 401);
        assert_ended(&stream.gateway, "expired").await;
        stream.gateway.wait_for_metric("streams_closed_total", 1).await;
    }
}

/// The token is revoked before the response is long enough in flight to count as a stream.
#[tokio::test]
async fn a_stream_that_has_just_started_ends_too() {
    let mut stream = OpenStream::over(Version::HTTP_2, "text/event-stream").await;
    revoke(&stream.gateway, &stream.pair).await;
    assert!(within_a_second(next_chunk(&mut stream.response)).await.is_none());
    assert_ended(&stream.gateway, "revoked").await;
}

#[tokio::test]
async fn any_other_response_breaks_off() {
    for version in VERSIONS {
        let mut stream = OpenStream::over(version, "application/octet-stream").await;
        stream.gateway.wait_for_metric("streams_opened_total", 1).await;
        revoke(&stream.gateway, &stream.pair).await;
        let frame = within_a_second(stream.response.frame()).await;
        assert!(frame.is_some_and(|frame| frame.is_err()), "an error, {version:?}");
        assert_ended(&stream.gateway, "revoked").await;
    }
}

/// The backend always has more data than the client reads, so the gateway never waits for the backend.
#[tokio::test]
async fn a_long_download_ends_with_its_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let mut body = connection.send(get("/large/1000000000", &pair.access)).await.into_body();
    next_chunk(&mut body).await.expect("a chunk");
    eventually("it counts as a stream", || gateway.running().metrics.render().contains("streams_opened_total 1\n"))
        .await;
    revoke(&gateway, &pair).await;
    let aborted = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return true;
            }
        }
        false
    };
    assert!(within_a_second(aborted).await);
    assert_ended(&gateway, "revoked").await;
}

#[tokio::test]
async fn a_request_in_flight_is_rejected_with_its_token() {
    for version in VERSIONS {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream);
        let pair = gateway.issue("alice", "").await;
        let connection = HttpConnection::of(version, gateway.address()).await;
        let sent = tokio::spawn(connection.sender().send(get("/hang", &pair.access)));
        eventually("the backend has the request", || upstream.in_flight() == 1).await;
        revoke(&gateway, &pair).await;
        let response = within_a_second(sent).await.expect("no panic").expect("a response");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{version:?}");
        assert!(response.headers()["www-authenticate"].to_str().expect("text").contains("invalid_token"));
        assert!(connection::text(response.into_body()).await.contains("the token was revoked"));
        eventually("the request to the backend is aborted", || upstream.in_flight() == 0).await;
        assert_logged_as_rejected(&gateway).await;
    }
}

async fn assert_logged_as_rejected(gateway: &Gateway) {
    let lines = gateway.log_lines(2).await;
    let line = lines.iter().find(|line| line["ended"] == "revoked").unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(401), Some("revoked")));
}

#[tokio::test]
async fn an_upload_ends_with_its_token() {
    for version in VERSIONS {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream);
        let pair = gateway.issue("alice", "").await;
        let connection = HttpConnection::of(version, gateway.address()).await;
        let (upload, body) = connection::streamed();
        let sent = tokio::spawn(connection.sender().send(request(Method::POST, "/swallow", &pair.access, body)));
        upload.send("the first chunk").await;
        eventually("the backend has the request", || upstream.in_flight() == 1).await;
        revoke(&gateway, &pair).await;
        let response = within_a_second(sent).await.expect("no panic").expect("a response");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{version:?}");
        eventually("the request to the backend is aborted", || upstream.in_flight() == 0).await;
    }
}

/// Only long requests are tracked as streams.
#[tokio::test]
async fn short_requests_are_not_counted_as_streams() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        let client = client.bearer(&pair.access);
        for path in ["/", "/drip", "/trailers"] {
            assert_eq!(client.get(path).await.status, 200);
        }
        assert_eq!(client.post("/", &serde_json::json!({ "a": 1 })).await.status, 200);
    }
    gateway.wait_for_metric("streams_opened_total", 0).await;
}

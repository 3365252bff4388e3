//! Streams without data for longer than `timeouts.body_idle`: the gateway ends the stream, but does not eject the
//! server.

use std::net::SocketAddr;

use http::{Request, Version};
use http_body_util::BodyExt;

use super::{in_front_of, metric};
use crate::support::connection::{self, HttpConnection};
use crate::support::{ScriptedBackend, Upstream, frames};

/// Sends three requests to each backend, and asserts that the quiet streams end without an ejection.
///
/// `call`: the content type of a gRPC call.
async fn assert_only_streams_end(quiet: SocketAddr, other: &Upstream, protocol: &str, call: Option<&str>) {
    let more = format!(
        "protocol = \"{protocol}\"\n[upstream.ejection]\nconsecutive_failures = 2\n[timeouts]\nbody_idle = \"200ms\""
    );
    let gateway = in_front_of(&[other.address, quiet], &more);
    let mut ended = 0;
    for _ in 0..6 {
        let version = if call.is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let request = match call {
            Some(kind) => Request::post("/").header("content-type", kind),
            None => Request::get("/"),
        };
        let answer = connection.send(request.body(connection::empty()).expect("a request")).await;
        assert_eq!(answer.status(), 200);
        ended += usize::from(answer.into_body().collect().await.is_err());
    }
    assert_eq!((ended, other.seen().len()), (3, 3));
    assert_eq!(metric(&gateway, "share", quiet).await, 1.0);
    assert_eq!(metric(&gateway, "ejections_total", quiet).await, 0.0);
}

#[tokio::test]
async fn a_quiet_event_stream_does_not_eject_its_server() {
    let quiet = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: hello\n\n").await;
        wire.read_to_end().await;
    });
    assert_only_streams_end(quiet.address, &Upstream::start(), "http1", None).await;
}

#[tokio::test]
async fn a_quiet_grpc_call_does_not_eject_its_server() {
    for kind in ["application/grpc+proto", "application/grpc-web+proto"] {
        let quiet = ScriptedBackend::start(move |mut wire, _| async move {
            let head = [&[frames::OK][..], &frames::block(&[("content-type", kind)])].concat();
            wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            wire.read_bytes(frames::PREFACE.len()).await;
            loop {
                let request = frames::next(&mut wire, &[frames::HEADERS, frames::GOAWAY]).await;
                if request.kind == frames::GOAWAY {
                    return;
                }
                wire.send(frames::frame(frames::HEADERS, frames::END_HEADERS, request.stream, &head)).await;
            }
        });
        assert_only_streams_end(quiet.address, &Upstream::start_http2(), "h2", Some(kind)).await;
    }
}

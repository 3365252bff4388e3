//! Backends whose streams have nothing to say for longer than `timeouts.body_idle`: the stream ends, the backend is as good as
//! it was.

use std::net::SocketAddr;

use http::Request;
use http_body_util::BodyExt;

use super::{in_front_of, metric};
use crate::support::session::{self, Session};
use crate::support::{Scripted, Upstream, frames};

/// Asks both in turn, three times each, and asserts that the streams of the quiet one end and do it no harm.
async fn only_its_streams_end(quiet: SocketAddr, other: &Upstream, protocol: &str) {
    let more = format!(
        "protocol = \"{protocol}\"\n[upstream.ejection]\nconsecutive_failures = 2\n[timeouts]\nbody_idle = \"200ms\""
    );
    let gateway = in_front_of(&[other.address, quiet], &more);
    let mut ended = 0;
    for _ in 0..6 {
        let mut session = Session::http1(gateway.address()).await;
        let answer = session.send(Request::get("/").body(session::empty()).expect("a request")).await;
        assert_eq!(answer.status(), 200);
        ended += usize::from(answer.into_body().collect().await.is_err());
    }
    assert_eq!((ended, other.seen().len()), (3, 3));
    assert_eq!(metric(&gateway, "share", quiet).await, 1.0);
    assert_eq!(metric(&gateway, "ejections_total", quiet).await, 0.0);
}

#[tokio::test]
async fn event_streams_may_be_quiet() {
    let quiet = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: hello\n\n").await;
        wire.hear_to_the_end().await;
    });
    only_its_streams_end(quiet.address, &Upstream::start(), "http1").await;
}

#[tokio::test]
async fn calls_of_grpc_may_be_quiet() {
    for kind in ["application/grpc+proto", "application/grpc-web+proto"] {
        let quiet = Scripted::start(move |mut wire, _| async move {
            let head = [&[frames::OK][..], &frames::block(&[("content-type", kind)])].concat();
            wire.say(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            wire.hear_bytes(frames::PREFACE.len()).await;
            loop {
                let asked = frames::next(&mut wire, &[frames::HEADERS, frames::GOAWAY]).await;
                if asked.kind == frames::GOAWAY {
                    return;
                }
                wire.say(frames::frame(frames::HEADERS, frames::END_HEADERS, asked.stream, &head)).await;
            }
        });
        only_its_streams_end(quiet.address, &Upstream::start_http2(), "h2").await;
    }
}

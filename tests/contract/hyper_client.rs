//! hyper's side of a backend.

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;

use crate::frames::{
    self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, NO_ERROR, OK, PREFACE, REFUSED_STREAM, RST_STREAM, SETTINGS, frame,
    next,
};
use crate::pipe::{pipe, soon};

/// Lets `src/upstream/retry.rs` send a request again that the server has not processed.
#[tokio::test]
async fn a_request_that_was_not_processed_fails_alone_and_says_so() {
    let (stream, _, mut server) = pipe();
    let handshake = soon(http2::handshake(TokioExecutor::new(), TokioIo::new(stream))).await;
    let (sender, connection) = handshake.expect("room");
    let connection = tokio::spawn(connection);
    let [served, refused, late] = [(); 3].map(|()| {
        let request = Request::get("http://a/").body(Empty::<Bytes>::new()).expect("a request");
        tokio::spawn(sender.clone().try_send_request(request))
    });
    soon(server.read_exact(&mut [0; PREFACE.len()])).await.expect("a client");
    for stream in [1, 3, 5] {
        assert_eq!(next(&mut server, &[HEADERS]).await.stream, stream);
    }
    let goaway = [3, NO_ERROR].map(u32::to_be_bytes).concat();
    let response = frame(HEADERS, END_STREAM | END_HEADERS, 1, &[OK]);
    let refusal = frame(RST_STREAM, 0, 3, &REFUSED_STREAM.to_be_bytes());
    frames::send(&mut server, &[frame(SETTINGS, 0, 0, &[]), refusal, frame(GOAWAY, 0, 0, &goaway), response]).await;
    assert!(soon(served).await.expect("no panic").is_ok());
    for (failed, reason, is_reset) in [(refused, h2::Reason::REFUSED_STREAM, true), (late, h2::Reason::NO_ERROR, false)]
    {
        let mut error = soon(failed).await.expect("no panic").expect_err("no response");
        assert!(error.take_message().is_none());
        let error = error.into_error();
        let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>()).expect("an error of h2");
        assert!(cause.is_remote() && cause.reason() == Some(reason), "{cause}");
        assert_eq!((cause.is_reset(), cause.is_go_away()), (is_reset, !is_reset), "{cause}");
    }
    soon(connection).await.expect("no panic").expect("a clean end");
}

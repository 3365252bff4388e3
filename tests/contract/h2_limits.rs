//! What h2 rejects below hyper, and what it accepts.

use std::error::Error;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::frames::{
    self, ACK, CANCEL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PROTOCOL_ERROR, RST_STREAM,
    begin, block, frame, get, next, post,
};
use crate::hyper_http2::{builder, hello, serve};
use crate::pipe::{drive, drive_until_it_waits, soon};

/// Maximum resets of a connection here.
const MOST: usize = 2;

/// Maximum empty DATA frames that h2 accepts: `MAX_EMPTY_DATA` of `src/server/flood.rs`.
const EMPTY_DATA: usize = 100;

/// A request that its client cancels at once.
fn cancelled(stream: u32) -> Vec<u8> {
    [get(stream), frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
}

/// A request that h2 resets: its trailers do not end it.
fn malformed(stream: u32) -> Vec<u8> {
    [post(stream), frame(HEADERS, END_HEADERS, stream, &block(&[("x", "1")]))].concat()
}

/// Returns the error of h2 that ended a connection.
fn cause(error: &hyper::Error) -> &h2::Error {
    error.source().and_then(|cause| cause.downcast_ref()).expect("an error of h2")
}

/// Lets `src/server/disconnect.rs` recognize the floods that h2 detects, and not which one it was: only the client
/// gets its name.
#[tokio::test]
async fn a_flood_ends_the_connection_with_enhance_your_calm_and_does_not_say_which_one() {
    let (mut connection, _, mut client) = serve(&builder(), service_fn(hello));
    frames::send(&mut client, &[begin(), post(1), frame(DATA, 0, 1, &[]).repeat(EMPTY_DATA)]).await;
    drive_until_it_waits(&mut connection).await;
    let streams = [1, 3, 5];
    let empty = frame(DATA, 0, 1, &[]).repeat(EMPTY_DATA + 1);
    for (flood, name) in [
        (streams.map(cancelled).concat(), "too_many_resets"),
        (streams.map(malformed).concat(), "too_many_internal_resets"),
        ([post(1), empty].concat(), "too_many_data_frames"),
    ] {
        let mut builder = builder();
        builder.max_pending_accept_reset_streams(MOST).max_local_error_reset_streams(MOST);
        let (connection, _, mut client) = serve(&builder, service_fn(hello));
        frames::send(&mut client, &[begin(), flood]).await;
        let error = soon(connection).await.expect_err("a flood");
        let cause = cause(&error);
        assert!(cause.is_library() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM), "{cause}");
        assert!(!cause.to_string().contains(name), "{cause}");
        assert!(next(&mut client, &[GOAWAY]).await.payload.ends_with(name.as_bytes()), "{name}");
    }
}

/// Makes `src/server/flood.rs` check the first frame, count PING, and end a closed stream with STREAM_CLOSED itself.
#[tokio::test]
async fn neither_missing_settings_nor_many_pings_are_an_error_and_a_closed_stream_is_a_protocol_error() {
    const PINGS: usize = 1_000;
    let (mut connection, _, mut client) = serve(&builder(), service_fn(hello));
    frames::send(&mut client, &[PREFACE.to_vec(), frame(PING, 0, 0, &[0; 8]).repeat(PINGS)]).await;
    for _ in 0..PINGS {
        let reply = drive(&mut connection, next(&mut client, &[PING, GOAWAY])).await;
        assert_eq!((reply.kind, reply.flags), (PING, ACK));
    }
    frames::send(&mut client, &[get(1), frame(DATA, END_STREAM, 1, b"more")]).await;
    assert!(soon(connection).await.is_err());
    assert_eq!(next(&mut client, &[GOAWAY]).await.number_at(4), PROTOCOL_ERROR);
}

/// Makes `src/server/http2.rs` allow twice the size of a head, and reject what is between itself.
#[tokio::test]
async fn a_head_above_its_maximum_gets_431_and_above_four_times_of_it_ends_the_connection() {
    const SIZE: usize = 1_000;
    for (times, expected) in
        [(0, Some(StatusCode::OK)), (1, Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)), (4, None)]
    {
        let mut builder = builder();
        let (connection, _, client) = serve(builder.max_header_list_size(SIZE as u32), service_fn(hello));
        let connection = tokio::spawn(connection);
        let (mut sender, peer) = h2::client::handshake(client).await.expect("room");
        tokio::spawn(peer);
        let request = Request::get("http://a/").header("x", "x".repeat(times * SIZE)).body(());
        let (response, _) = sender.send_request(request.expect("a request"), true).expect("an open connection");
        assert_eq!(soon(response).await.ok().map(|response| response.status()), expected);
        drop(sender);
        match soon(connection).await.expect("no panic") {
            Ok(()) => assert!(expected.is_some()),
            Err(error) => assert_eq!(cause(&error).reason(), Some(h2::Reason::ENHANCE_YOUR_CALM)),
        }
    }
}

/// Returns the names of the trailers.
async fn name_trailers(request: Request<Incoming>) -> Result<Response<String>, hyper::Error> {
    let trailers = request.into_body().collect().await?.trailers().cloned().unwrap_or_default();
    Ok(Response::new(trailers.keys().map(|name| name.as_str()).collect()))
}

/// Makes `src/server/trailers.rs` look for pseudo-headers, and take END_STREAM from those trailers.
#[tokio::test]
async fn trailers_that_begin_with_a_pseudo_header_lose_it_and_those_without_end_are_reset() {
    let path = (":path", "/");
    let field = ("x", "1");
    for (fields, flags, expected) in [
        ([path, field], END_STREAM, Ok(b"x".to_vec())),
        ([field, path], END_STREAM, Err(PROTOCOL_ERROR)),
        ([field, field], 0, Err(PROTOCOL_ERROR)),
    ] {
        let (mut connection, _, mut client) = serve(&builder(), service_fn(name_trailers));
        let trailers = frame(HEADERS, flags | END_HEADERS, 1, &block(&fields));
        frames::send(&mut client, &[begin(), post(1), trailers]).await;
        let received = drive(&mut connection, next(&mut client, &[DATA, RST_STREAM])).await;
        let outcome = if received.kind == DATA { Ok(received.payload) } else { Err(received.number_at(0)) };
        assert_eq!(outcome, expected, "{fields:?}");
    }
}

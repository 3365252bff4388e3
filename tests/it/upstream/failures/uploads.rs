//! A backend that fails in the middle of an upload: the client is told so, whether all of its body fits on the way or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::points::{End, OK, STATUS_200, with_one_place};
use super::{logged, told};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::support::session::{self, Session};
use crate::support::{Gateway, Scripted, Wire};

/// Of these bodies, one fits into any buffer; and the other into none, so that its client is still sending.
const SIZES: [usize; 2] = [1 << 10, 64 << 20];

/// What a backend takes of a body: half of it, or of its first window (RFC 9113 section 6.9.2).
fn taken_of(size: usize) -> usize {
    (size / 2).min(32 << 10)
}

/// A body of this size, and how much of it was sent.
fn upload(size: usize) -> (Arc<AtomicUsize>, session::Body) {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 16 << 10]);
    let sent = Arc::<AtomicUsize>::default();
    let counts = sent.clone();
    let pieces = futures_util::stream::poll_fn(move |_| {
        let left = size - counts.load(Ordering::SeqCst);
        let piece = PIECE.slice(..left.min(PIECE.len()));
        counts.fetch_add(piece.len(), Ordering::SeqCst);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    });
    (sent, StreamBody::new(pieces).boxed_unsync())
}

/// Far longer than the 300 ms that a backend has here for its answer, and far shorter than what else would end it.
const IN_TIME: Duration = Duration::from_secs(5);

/// Asserts how an upload of this size ends, and that another request is served afterwards.
async fn fails(gateway: &Gateway, version: Version, size: usize, expected: (u64, &str), told_as: &str) {
    let mut session = Session::of(version, gateway.address()).await;
    let began = Instant::now();
    let (sent, body) = upload(size);
    let answer = session.send(Request::post("/").body(body).expect("a request")).await;
    assert_eq!(u64::from(answer.status().as_u16()), expected.0, "{told_as}");
    if expected.0 == 504 {
        assert_eq!(sent.load(Ordering::SeqCst) == size, size == SIZES[0], "{told_as}: still sending, or not");
    }
    session::text(answer.into_body()).await;
    assert!(began.elapsed() < IN_TIME, "{told_as}: {:?}", began.elapsed());
    assert_eq!(logged(gateway).await, told(expected.0, expected.1, true), "{told_as}");
    assert_eq!(gateway.client().get("/").await.text(), "ok", "{told_as}");
}

#[tokio::test]
async fn in_the_middle_of_a_body_over_http1() {
    for (said, end, expected) in [
        ("", End::Reset, (502, "upstream_broken")),
        ("", End::Close, (502, "upstream_broken")),
        ("", End::HalfClose, (502, "upstream_broken")),
        ("", End::Stall, (504, "upstream_timeout")),
        ("SSH-2.0-OpenSSH_9.2\r\n", End::Stall, (502, "upstream_broken")),
        // Asks for the rest, and then does not take it.
        ("HTTP/1.1 100 Continue\r\n\r\n", End::Stall, (504, "upstream_timeout")),
    ] {
        for (version, size) in [Version::HTTP_11, Version::HTTP_2].into_iter().flat_map(|v| SIZES.map(|s| (v, s))) {
            let backend = Scripted::start(move |mut wire, number| async move {
                wire.hear_until("\r\n\r\n").await;
                if number > 0 {
                    return wire.say(OK).await;
                }
                wire.hear_bytes(taken_of(size)).await;
                wire.say(said).await;
                match end {
                    End::Stall => stands_still(wire).await,
                    end => end.of(wire).await,
                }
            });
            let told_as = format!("{version:?}, {size} bytes, {end:?} after {said:?}");
            fails(&with_one_place(&backend, "http1"), version, size, expected, &told_as).await;
        }
    }
}

/// Reads nothing more. Who tries to write will learn when it is over.
async fn stands_still(wire: Wire) {
    std::future::pending::<()>().await;
    drop(wire);
}

#[tokio::test]
async fn in_the_middle_of_a_body_over_http2() {
    let internal_error = frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]);
    for (said, end, expected) in [
        (vec![], End::Reset, (502, "upstream_broken")),
        (vec![], End::Close, (502, "upstream_broken")),
        (vec![], End::Stall, (504, "upstream_timeout")),
        (internal_error, End::Stall, (502, "upstream_broken")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), End::Stall, (502, "upstream_broken")),
        (frames::frame(DATA, 0, 1, b"no head"), End::Stall, (502, "upstream_broken")),
    ] {
        for (version, size) in [Version::HTTP_11, Version::HTTP_2].into_iter().flat_map(|v| SIZES.map(|s| (v, s))) {
            let says = said.clone();
            let backend = Scripted::start(move |mut wire, number| {
                let said = says.clone();
                async move {
                    wire.hear_bytes(frames::PREFACE.len()).await;
                    wire.say(frames::frame(SETTINGS, 0, 0, &[])).await;
                    if number == 0 {
                        let mut heard = 0;
                        while heard < taken_of(size) {
                            heard += frames::next(&mut wire, &[DATA]).await.payload.len();
                        }
                        wire.say(said).await;
                        if !matches!(end, End::Stall) {
                            return end.of(wire).await;
                        }
                    }
                    answers_the_next(wire).await;
                }
            });
            let told_as = format!("{version:?}, {size} bytes, {end:?} after {:?}", said.escape_ascii().to_string());
            fails(&with_one_place(&backend, "h2"), version, size, expected, &told_as).await;
        }
    }
}

/// Of its streams, those that begin from now on.
async fn answers_the_next(mut wire: Wire) {
    let stream = frames::next(&mut wire, &[HEADERS]).await.stream;
    let head = frames::frame(HEADERS, END_HEADERS, stream, STATUS_200);
    wire.say([head, frames::frame(DATA, END_STREAM, stream, b"ok")].concat()).await;
    wire.hear_to_the_end().await;
}

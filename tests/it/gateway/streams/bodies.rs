//! Answers and uploads, and the wait between them: a stream of events ends quietly, anything else breaks off.

use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::*;
use crate::support::Pair;
use crate::support::session::{self, Session, eventually, next_piece};

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A backend that answers with this head and one chunk, and then says nothing more.
fn backend(kind: &'static str) -> Scripted {
    Scripted::start(move |mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n");
        wire.say(format!("{head}9\r\ndata: 1\n\n\r\n")).await;
        wire.hear_to_the_end().await;
    })
}

fn request(method: Method, path: &str, token: &str, body: session::Body) -> Request<session::Body> {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    request.body(body).expect("a request")
}

fn get(path: &str, token: &str) -> Request<session::Body> {
    request(Method::GET, path, token, session::empty())
}

/// An answer of which the first piece has come, and no more will.
struct Begun {
    gateway: Gateway,
    pair: Pair,
    session: Session,
    answer: Incoming,
    _backend: Scripted,
}

impl Begun {
    async fn over(version: Version, kind: &'static str) -> Begun {
        let backend = backend(kind);
        let gateway = Gateway::from_text(Gateway::text(&backend.address.to_string(), ""));
        let pair = gateway.issue("alice", "").await;
        let mut session = Session::of(version, gateway.address()).await;
        let mut answer = session.send(get("/stream", &pair.access)).await.into_body();
        assert_eq!(next_piece(&mut answer).await.expect("a piece"), "data: 1\n\n");
        Begun { gateway, pair, session, answer, _backend: backend }
    }
}

async fn revoke(gateway: &Gateway, pair: &Pair) {
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
}

#[tokio::test]
async fn a_stream_of_events_ends_and_the_next_connection_is_refused() {
    for version in VERSIONS {
        let mut begun = Begun::over(version, "text/event-stream; charset=utf-8").await;
        begun.gateway.counts("streams_opened_total", 1).await;
        begun.gateway.advance(LIFE);
        assert!(within_a_second(next_piece(&mut begun.answer)).await.is_none(), "a clean end, {version:?}");
        assert_eq!(begun.session.send(get("/stream", &begun.pair.access)).await.status(), 401);
        logged(&begun.gateway, "expired").await;
        begun.gateway.counts("streams_closed_total", 1).await;
    }
}

/// The token ends before the answer is a moment old: nobody has entered it as a stream by then.
#[tokio::test]
async fn what_has_just_begun_ends_as_well() {
    let mut begun = Begun::over(Version::HTTP_2, "text/event-stream").await;
    revoke(&begun.gateway, &begun.pair).await;
    assert!(within_a_second(next_piece(&mut begun.answer)).await.is_none());
    logged(&begun.gateway, "revoked").await;
}

#[tokio::test]
async fn any_other_answer_is_seen_not_to_be_complete() {
    for version in VERSIONS {
        let mut begun = Begun::over(version, "application/octet-stream").await;
        begun.gateway.counts("streams_opened_total", 1).await;
        revoke(&begun.gateway, &begun.pair).await;
        let frame = within_a_second(begun.answer.frame()).await;
        assert!(frame.is_some_and(|frame| frame.is_err()), "it breaks off, {version:?}");
        logged(&begun.gateway, "revoked").await;
    }
}

/// Its reader takes it slowly and its backend always has more: nobody ever waits for the backend.
#[tokio::test]
async fn a_long_answer_that_never_waits_ends_too() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let mut session = Session::http1(gateway.address()).await;
    let mut body = session.send(get("/large/1000000000", &pair.access)).await.into_body();
    next_piece(&mut body).await.expect("a piece");
    eventually("it is entered", || gateway.running().metrics.render().contains("streams_opened_total 1\n")).await;
    revoke(&gateway, &pair).await;
    let broken = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return true;
            }
        }
        false
    };
    assert!(within_a_second(broken).await);
    logged(&gateway, "revoked").await;
}

#[tokio::test]
async fn a_request_without_an_answer_is_refused() {
    for version in VERSIONS {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream);
        let pair = gateway.issue("alice", "").await;
        let session = Session::of(version, gateway.address()).await;
        let asked = tokio::spawn(session.sender().send(get("/hang", &pair.access)));
        eventually("it was asked", || upstream.in_flight() == 1).await;
        revoke(&gateway, &pair).await;
        let answer = within_a_second(asked).await.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{version:?}");
        assert!(answer.headers()["www-authenticate"].to_str().expect("text").contains("invalid_token"));
        assert!(session::text(answer.into_body()).await.contains("the token was revoked"));
        eventually("the backend is left alone", || upstream.in_flight() == 0).await;
        logged_as_refused(&gateway).await;
    }
}

async fn logged_as_refused(gateway: &Gateway) {
    let lines = gateway.log_lines(2).await;
    let line = lines.iter().find(|line| line["ended"] == "revoked").unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(401), Some("revoked")));
}

#[tokio::test]
async fn an_upload_ends() {
    for version in VERSIONS {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream);
        let pair = gateway.issue("alice", "").await;
        let session = Session::of(version, gateway.address()).await;
        let (pieces, body) = session::streamed();
        let asked = tokio::spawn(session.sender().send(request(Method::POST, "/swallow", &pair.access, body)));
        pieces.send("a beginning").await;
        eventually("it arrives", || upstream.in_flight() == 1).await;
        revoke(&gateway, &pair).await;
        let answer = within_a_second(asked).await.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{version:?}");
        eventually("the backend sees it broken", || upstream.in_flight() == 0).await;
    }
}

/// Nothing of an ordinary request is entered anywhere.
#[tokio::test]
async fn short_requests_are_no_streams() {
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
    gateway.counts("streams_opened_total", 0).await;
}

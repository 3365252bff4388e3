//! Calls of gRPC end with the status UNAUTHENTICATED, between two messages.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::*;
use crate::support::Pair;
use crate::support::session::{self, Pieces, Session, next_piece};

/// A backend over HTTP/2 that sends back what it gets, piece by piece, as what it was; `/hang` gets no answer.
async fn backend() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answer = |request: Request<Incoming>| async move {
        if request.uri().path() == "/hang" {
            std::future::pending::<()>().await;
        }
        let kind = request.headers()["content-type"].clone();
        let mut response = Response::new(request.into_body());
        response.headers_mut().insert("content-type", kind);
        Ok::<_, std::convert::Infallible>(response)
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    address
}

struct Call {
    gateway: Gateway,
    pair: Pair,
    _session: Session,
    pieces: Pieces,
    body: Incoming,
}

/// A call in both directions that has gone on for a moment.
async fn call(kind: &str, sent: &[u8]) -> Call {
    let gateway = gateway_of_one_worker(&backend().await.to_string(), "protocol = \"h2\"\n[timeouts]\ndrain = \"2s\"");
    let pair = gateway.issue("alice", "").await;
    let mut session = Session::http2(gateway.address()).await;
    let (pieces, body) = session::streamed();
    let request = Request::post("/service/Method").header("content-type", kind).header("te", "trailers");
    let request = request.header("authorization", format!("Bearer {}", pair.access)).body(body).expect("a request");
    pieces.send(sent.to_vec()).await;
    let answer = session.send(request).await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    assert_eq!(next_piece(&mut body).await.expect("what was sent"), sent);
    // The upload, and the answer.
    gateway.counts("streams_opened_total", 2).await;
    Call { gateway, pair, _session: session, pieces, body }
}

fn message(text: &str) -> Vec<u8> {
    [&[0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

async fn revoke(call: &Call) {
    assert_eq!(call.gateway.revoke(&call.pair.access, &call.pair.token_id).await.status, 200);
}

fn assert_unauthenticated(trailers: &HeaderMap) {
    assert_eq!(trailers["grpc-status"], "16");
    assert!(trailers["grpc-message"].as_bytes().starts_with(b"the token was revoked"), "{trailers:?}");
}

#[tokio::test]
async fn a_call_ends_with_a_status() {
    let mut call = call("application/grpc+proto", &message("hello")).await;
    revoke(&call).await;
    let frame = within_a_second(call.body.frame()).await.expect("trailers").expect("no reset");
    assert_unauthenticated(&frame.into_trailers().expect("trailers"));
    assert!(call.body.frame().await.is_none());
    logged(&call.gateway, "revoked").await;
}

/// A call may be nearly done. If it is not when the time is up, its client is told where it can go on: elsewhere.
#[tokio::test]
async fn a_call_that_outlasts_a_drain_is_unavailable() {
    let mut call = call("application/grpc+proto", &message("hello")).await;
    let draining = call.gateway.begin_drain();
    call.pieces.send(message("still there?")).await;
    assert_eq!(next_piece(&mut call.body).await.expect("what was sent"), message("still there?"));
    let frame = call.body.frame().await.expect("trailers").expect("no reset");
    let trailers = frame.trailers_ref().expect("trailers");
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"14".parse().unwrap(), &"the gateway is going away".parse().unwrap())
    );
    // The connection goes with the gateway, under a request that is still being sent: to h2, that breaks the answer as well, also
    // a whole one.
    assert!(!matches!(call.body.frame().await, Some(Ok(_))), "nothing follows");
    draining.join().expect("it ends");
    logged(&call.gateway, "draining").await;
}

#[tokio::test]
async fn a_message_that_never_ends_is_reset() {
    let mut call = call("application/grpc", &message("hello")[..7]).await;
    revoke(&call).await;
    assert!(within_a_second(call.body.frame()).await.expect("an end").is_err(), "a reset");
    logged(&call.gateway, "revoked").await;
    drop(call.pieces);
}

/// The backend ends its message after the token, and begins another.
#[tokio::test]
async fn a_message_under_way_is_passed_on_whole() {
    use tokio::io::AsyncWriteExt;
    let (server, address) = by_hand().await;
    let gateway = gateway_of_one_worker(&address.to_string(), "protocol = \"h2\"");
    let pair = gateway.issue("alice", "").await;
    let mut session = Session::http2(gateway.address()).await;
    let request = Request::post("/service/Method").header("content-type", "application/grpc");
    let request =
        request.header("authorization", format!("Bearer {}", pair.access)).body(session::full(message("ask")));
    let answer = session.send(request.expect("a request")).await;
    let mut server = server.await.expect("no panic");
    let mut body = answer.into_body();
    let all = [message("a message in two pieces"), message("never seen")].concat();
    server.write_all(&data(1, &all[..10])).await.expect("written");
    assert_eq!(next_piece(&mut body).await.expect("a piece"), all[..10]);
    gateway.counts("streams_opened_total", 1).await;
    // A witness over the same worker: when it is refused, the call was ended as well.
    let witness = tokio::spawn(
        Session::http2(gateway.address()).await.sender().send(
            Request::get("/hang")
                .header("authorization", format!("Bearer {}", pair.access))
                .body(session::empty())
                .expect("a request"),
        ),
    );
    gateway.counts("streams_opened_total", 2).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(witness.await.expect("no panic").expect("an answer").status(), 401);
    server.write_all(&data(1, &all[10..])).await.expect("written");
    let whole = message("a message in two pieces").len();
    assert_eq!(next_piece(&mut body).await.expect("the rest"), all[10..whole]);
    let frame = within_a_second(body.frame()).await.expect("trailers").expect("no reset");
    assert_unauthenticated(&frame.into_trailers().expect("trailers"));
}

/// An HTTP/2 server by hand: it answers the first stream with a head, and leaves the rest to the story.
async fn by_hand() -> (tokio::task::JoinHandle<TcpStream>, std::net::SocketAddr) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // SETTINGS, and an acknowledgement of those that come.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("written");
        let mut heard = [0; 1024];
        let mut count = 0;
        // HEADERS of stream 1 have come, and its DATA with END_STREAM.
        while !heard[..count].windows(9).any(|frame| frame[3..] == [0, 1, 0, 0, 0, 1]) {
            count += stream.read(&mut heard[count..]).await.expect("a request");
        }
        // `:status: 200` of the static table, and content-type (31 of it) as a literal.
        let kind = b"application/grpc";
        let block = [&[0x88, 0x0f, 16, kind.len() as u8][..], kind].concat();
        stream.write_all(&frame(1, 4, 1, &block)).await.expect("written");
        stream
    });
    (serving, address)
}

fn data(stream: u8, bytes: &[u8]) -> Vec<u8> {
    frame(0, 0, stream, bytes)
}

fn frame(kind: u8, flags: u8, stream: u8, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], bytes].concat()
}

#[tokio::test]
async fn a_call_without_an_answer_gets_a_status_alone() {
    let gateway = Gateway::from_text(Gateway::text(&backend().await.to_string(), "protocol = \"h2\""));
    let pair = gateway.issue("alice", "").await;
    let session = Session::http2(gateway.address()).await;
    let request = Request::post("/hang").header("content-type", "application/grpc");
    let request = request.header("authorization", format!("Bearer {}", pair.access)).body(session::full(message("x")));
    let asked = tokio::spawn(session.sender().send(request.expect("a request")));
    gateway.counts("streams_opened_total", 1).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let answer = within_a_second(asked).await.expect("no panic").expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (200, &"application/grpc".parse().expect("a value"))
    );
    assert_unauthenticated(answer.headers());
    assert!(session::text(answer.into_body()).await.is_empty());
}

#[tokio::test]
async fn grpc_web_has_its_trailers_in_the_body() {
    let mut call = call("application/grpc-web+proto", &message("hello")).await;
    revoke(&call).await;
    let last = within_a_second(next_piece(&mut call.body)).await.expect("a last message");
    let text = b"grpc-status:16\r\ngrpc-message:the token was revoked\r\n";
    assert_eq!(last, Bytes::from([&[0x80, 0, 0, 0, text.len() as u8][..], text].concat()));
    assert!(next_piece(&mut call.body).await.is_none());
}

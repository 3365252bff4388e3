//! A gRPC call with a token that ends gets the status UNAUTHENTICATED, between two messages.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::*;
use crate::support::TokenPair;
use crate::support::connection::{self, BodySender, HttpConnection, next_chunk};

/// An HTTP/2 backend that echoes each chunk with the same content type. `/hang` gets no response.
async fn backend() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let respond = |request: Request<Incoming>| async move {
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
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(respond)));
        }
    });
    address
}

struct Call {
    gateway: Gateway,
    pair: TokenPair,
    _connection: HttpConnection,
    upload: BodySender,
    body: Incoming,
}

/// Starts a call that sends and receives messages.
async fn call(kind: &str, sent: &[u8]) -> Call {
    let gateway = gateway_of_one_worker(&backend().await.to_string(), "protocol = \"h2\"\n[timeouts]\ndrain = \"2s\"");
    let pair = gateway.issue("alice", "").await;
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let (upload, body) = connection::streamed();
    let request = Request::post("/service/Method").header("content-type", kind).header("te", "trailers");
    let request = request.header("authorization", format!("Bearer {}", pair.access)).body(body).expect("a request");
    upload.send(sent.to_vec()).await;
    let response = connection.send(request).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert_eq!(next_chunk(&mut body).await.expect("what was sent"), sent);
    // The upload and the response.
    gateway.wait_for_metric("streams_opened_total", 2).await;
    Call { gateway, pair, _connection: connection, upload, body }
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
async fn a_revocation_ends_a_grpc_call_with_a_status() {
    let mut call = call("application/grpc+proto", &message("hello")).await;
    revoke(&call).await;
    let frame = within_a_second(call.body.frame()).await.expect("trailers").expect("no reset");
    assert_unauthenticated(&frame.into_trailers().expect("trailers"));
    assert!(call.body.frame().await.is_none());
    assert_ended(&call.gateway, "revoked").await;
}

/// A drain lets calls finish until its deadline. Then the client gets UNAVAILABLE, so that it retries elsewhere.
#[tokio::test]
async fn a_call_open_at_the_drain_deadline_is_unavailable() {
    let mut call = call("application/grpc+proto", &message("hello")).await;
    let draining = call.gateway.begin_drain();
    call.upload.send(message("still there?")).await;
    assert_eq!(next_chunk(&mut call.body).await.expect("what was sent"), message("still there?"));
    let frame = call.body.frame().await.expect("trailers").expect("no reset");
    let trailers = frame.trailers_ref().expect("trailers");
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"14".parse().unwrap(), &"the gateway is shutting down".parse().unwrap())
    );
    // The connection closes while the request is still being sent. The h2 crate then reports an error, also after a
    // complete response.
    assert!(!matches!(call.body.frame().await, Some(Ok(_))), "nothing follows");
    draining.join().expect("it ends");
    assert_ended(&call.gateway, "draining").await;
}

#[tokio::test]
async fn an_incomplete_message_is_reset() {
    let mut call = call("application/grpc", &message("hello")[..7]).await;
    revoke(&call).await;
    assert!(within_a_second(call.body.frame()).await.expect("the end").is_err(), "a reset");
    assert_ended(&call.gateway, "revoked").await;
    drop(call.upload);
}

/// The backend completes its message after the token was revoked, and starts another one.
#[tokio::test]
async fn a_message_in_flight_is_forwarded_completely() {
    use tokio::io::AsyncWriteExt;
    let (server, address) = raw_backend().await;
    let gateway = gateway_of_one_worker(&address.to_string(), "protocol = \"h2\"");
    let pair = gateway.issue("alice", "").await;
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let request = Request::post("/service/Method").header("content-type", "application/grpc");
    let request =
        request.header("authorization", format!("Bearer {}", pair.access)).body(connection::full(message("ask")));
    let response = connection.send(request.expect("a request")).await;
    let mut server = server.await.expect("no panic");
    let mut body = response.into_body();
    let all = [message("a message in two pieces"), message("never seen")].concat();
    server.write_all(&data(1, &all[..10])).await.expect("written");
    assert_eq!(next_chunk(&mut body).await.expect("a piece"), all[..10]);
    gateway.wait_for_metric("streams_opened_total", 1).await;
    // A second request to the same worker: when it is rejected, the gateway has handled the revocation.
    let witness = tokio::spawn(
        HttpConnection::http2(gateway.address()).await.sender().send(
            Request::get("/hang")
                .header("authorization", format!("Bearer {}", pair.access))
                .body(connection::empty())
                .expect("a request"),
        ),
    );
    gateway.wait_for_metric("streams_opened_total", 2).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(witness.await.expect("no panic").expect("a response").status(), 401);
    server.write_all(&data(1, &all[10..])).await.expect("written");
    let end = message("a message in two pieces").len();
    assert_eq!(next_chunk(&mut body).await.expect("the rest"), all[10..end]);
    let frame = within_a_second(body.frame()).await.expect("trailers").expect("no reset");
    assert_unauthenticated(&frame.into_trailers().expect("trailers"));
}

/// An HTTP/2 backend that sends the head of its first response. The test sends the rest by single frames.
async fn raw_backend() -> (tokio::task::JoinHandle<TcpStream>, std::net::SocketAddr) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // SETTINGS, and the acknowledgement of the client's SETTINGS.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("written");
        let mut received = [0; 1024];
        let mut count = 0;
        // Reads until the DATA of stream 1 with END_STREAM.
        while !received[..count].windows(9).any(|frame| frame[3..] == [0, 1, 0, 0, 0, 1]) {
            count += stream.read(&mut received[count..]).await.expect("a request");
        }
        // `:status: 200` of the static table, and a literal value for content-type (31 in the static table).
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
async fn a_call_without_a_response_gets_only_a_status() {
    let gateway = Gateway::from_text(Gateway::config_text(&backend().await.to_string(), "protocol = \"h2\""));
    let pair = gateway.issue("alice", "").await;
    let connection = HttpConnection::http2(gateway.address()).await;
    let request = Request::post("/hang").header("content-type", "application/grpc");
    let request =
        request.header("authorization", format!("Bearer {}", pair.access)).body(connection::full(message("x")));
    let sent = tokio::spawn(connection.sender().send(request.expect("a request")));
    gateway.wait_for_metric("streams_opened_total", 1).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let response = within_a_second(sent).await.expect("no panic").expect("a response");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/grpc".parse().expect("a value"))
    );
    assert_unauthenticated(response.headers());
    assert!(connection::text(response.into_body()).await.is_empty());
}

#[tokio::test]
async fn grpc_web_gets_its_trailers_in_the_body() {
    let mut call = call("application/grpc-web+proto", &message("hello")).await;
    revoke(&call).await;
    let last = within_a_second(next_chunk(&mut call.body)).await.expect("a last message");
    let text = b"grpc-status:16\r\ngrpc-message:the token was revoked\r\n";
    assert_eq!(last, Bytes::from([&[0x80, 0, 0, 0, text.len() as u8][..], text].concat()));
    assert!(next_chunk(&mut call.body).await.is_none());
}

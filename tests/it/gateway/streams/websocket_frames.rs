//! WebSockets pass, once the backend has agreed, until either side closes.

use futures_util::{SinkExt, StreamExt};
use http::Request;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::{Gateway, Scripted, Upstream, Wire};

type Socket = WebSocketStream<TcpStream>;

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn handshake(token: Option<&str>) -> Request<()> {
    let mut request = "ws://gateway.test/ws?room=1".into_client_request().expect("a request");
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header value"));
    }
    request.headers_mut().insert("sec-websocket-protocol", "chat.v2".parse().expect("a header value"));
    request
}

async fn connect(gateway: &Gateway, request: Request<()>) -> Result<Socket, Error> {
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    client_async(request, stream).await.map(|(socket, _)| socket)
}

#[tokio::test]
async fn messages_pass_both_ways_whatever_their_kind_and_size() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let mut socket = connect(&gateway, handshake(Some(&pair.access))).await.expect("a WebSocket");
    for message in [
        Message::text("hello"),
        Message::binary(Bytes::from_static(&[0, 255, 128])),
        Message::binary(vec![7; 1 << 20]),
        Message::text(""),
    ] {
        socket.send(message.clone()).await.expect("sent");
        assert!(socket.next().await.expect("an echo").expect("a message") == message, "{} bytes", message.len());
    }
    let seen = upstream.only();
    assert_eq!(seen.uri, "/ws?room=1");
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!(seen.header("sec-websocket-version"), Some("13"));
}

#[tokio::test]
async fn the_backend_chooses_the_subprotocol() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let (_, answer) = client_async(handshake(None), stream).await.expect("a WebSocket");
    assert_eq!(answer.headers()["sec-websocket-protocol"], "chat.v2");
}

/// What they agree on is about frames, which pass as they are: the gateway has no part in it.
#[tokio::test]
async fn client_and_backend_agree_on_extensions() {
    let backend = Scripted::start(|mut wire, _| async move {
        let head = wire.hear_until("\r\n\r\n").await;
        let chosen = "Sec-WebSocket-Extensions: x-bear\r\nSec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover";
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket";
        wire.say(format!("{switched}\r\n{chosen}\r\n\r\n{head}")).await;
    });
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    let offered = ["permessage-deflate; client_max_window_bits, x-bear; paws=\"4\"", "permessage-deflate"];
    let [first, second] = offered.map(|offer| format!("Sec-WebSocket-Extensions: {offer}\r\n"));
    client.say(format!("{HANDSHAKE}{first}{second}\r\n")).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 101);
    assert_eq!(extensions(&answer.head), ["x-bear", "permessage-deflate; client_no_context_takeover"]);
    let seen: Vec<String> = client.hear_to_the_end().await.lines().map(str::to_owned).collect();
    assert_eq!(extensions(&seen), offered);
}

/// What these lines of a head say of extensions, field by field.
fn extensions(head: &[String]) -> Vec<&str> {
    let fields = head.iter().filter_map(|line| line.split_once(": "));
    fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-extensions")).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn without_a_token_nothing_is_switched_anywhere() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    match connect(&gateway, handshake(None)).await {
        Err(Error::Http(answer)) => assert_eq!(answer.status(), 401),
        other => panic!("no refusal: {:?}", other.err()),
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_backend_that_will_not_switch_is_heard() {
    let backend = Scripted::answering("HTTP/1.1 403 Forbidden\r\nX-Why: no room\r\nContent-Length: 4\r\n\r\nfull");
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        client.say(format!("{HANDSHAKE}\r\n")).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("x-why"), answer.body.as_str()), (403, Some("no room"), "full"));
    }
}

/// Pingora opened the tunnel before the backend had agreed, and for any protocol (CVE-2026-2833): what the client sent next
/// went past every check.
#[tokio::test]
async fn an_upstream_that_speaks_http2_opens_none_and_the_client_is_told() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"");
    let mut wire = Wire::connect(gateway.address()).await;
    wire.say(format!("{HANDSHAKE}\r\n")).await;
    let refused = wire.answer().await;
    assert_eq!(refused.status, 501, "{refused:?}");
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "protocol_not_supported");
    assert!(upstream.seen().is_empty(), "as an ordinary request it means something else");
}

#[tokio::test]
async fn other_protocols_are_not_switched_to() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = format!("Authorization: Bearer {}\r\n", pair.access);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n",
        "HEAD /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "POST /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n",
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("{head}{token}\r\n{smuggled}")).await;
        assert!(client.hear_until("\r\n\r\n").await.starts_with("HTTP/1.1 200"), "{head}");
        assert!(client.hear_until("\r\n\r\n").await.contains("HTTP/1.1 401"), "read as a request of its own: {head}");
    }
    let seen = upstream.seen();
    assert!(seen.iter().all(|seen| seen.uri == "/plain" && seen.header("upgrade").is_none()), "{seen:?}");
}

#[tokio::test]
async fn a_backend_that_switches_unasked_or_to_something_else_is_broken() {
    const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    let backend = Scripted::answering(SWITCHED);
    let gateway = Gateway::open(backend.address, "");
    gateway.client().get("/").await.refused(502, "bad_gateway");
    let mut client = Wire::connect(gateway.address()).await;
    client.say(format!("{HANDSHAKE}\r\n")).await;
    assert_eq!(client.answer().await.status, 502);
}

#[tokio::test]
async fn what_is_sent_behind_the_handshake_is_not_lost() {
    let backend = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfrom backend")
            .await;
        wire.hear_until("from client").await;
        wire.say(" and back").await;
    });
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.say(format!("{HANDSHAKE}\r\nfrom client")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!(client.hear_to_the_end().await, "from backend and back");
}

#[tokio::test]
async fn when_the_client_closes_the_backend_learns_it_and_one_line_is_written() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let mut socket = connect(&gateway, handshake(Some(&pair.access))).await.expect("a WebSocket");
    socket.send(Message::text("hello")).await.expect("sent");
    socket.next().await.expect("an echo").expect("a message");
    assert!(gateway.file("access.log").is_empty(), "the request is not over");
    socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "bye".into() })).await.expect("closed");
    while let Some(Ok(_)) = socket.next().await {}
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["subject"].as_str()), (Some(101), Some("alice")));
    assert!(line["sent"].as_u64().is_some_and(|sent| sent >= 7), "{line}");
}

#[tokio::test]
async fn when_either_side_goes_the_other_is_closed() {
    for client_goes in [true, false] {
        let backend = Scripted::start(move |mut wire, _| async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
            if client_goes {
                wire.is_closed().await;
            }
        });
        let gateway = Gateway::open(backend.address, "");
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("{HANDSHAKE}\r\n")).await;
        assert_eq!(client.answer().await.status, 101);
        if client_goes {
            drop(client);
        } else {
            client.is_closed().await;
        }
        assert_eq!(gateway.log_lines(1).await[0]["status"], 101);
    }
}

/// A backend that is gone while its client says nothing, for ever: the gateway does not keep the tunnel for that.
#[tokio::test]
async fn half_a_tunnel_is_none() {
    let backend = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    });
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.say(format!("{HANDSHAKE}\r\n")).await;
    assert_eq!(client.answer().await.status, 101);
    // Kept open, and never read.
    assert_eq!(gateway.log_lines(1).await[0]["status"], 101);
    drop(client);
}

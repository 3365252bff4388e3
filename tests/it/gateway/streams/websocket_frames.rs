//! The gateway forwards WebSocket frames after the backend has accepted the upgrade, until one side closes.

use futures_util::{SinkExt, StreamExt};
use http::Request;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

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
async fn messages_of_any_type_and_size_pass_both_ways() {
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
    let seen = upstream.only_request();
    assert_eq!(seen.uri, "/ws?room=1");
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!(seen.header("sec-websocket-version"), Some("13"));
}

#[tokio::test]
async fn the_backend_chooses_the_subprotocol() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let (_, response) = client_async(handshake(None), stream).await.expect("a WebSocket");
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat.v2");
}

/// The gateway forwards frames unchanged, so it takes no part in the negotiation of extensions.
#[tokio::test]
async fn client_and_backend_negotiate_extensions() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        let head = wire.read_until("\r\n\r\n").await;
        let chosen = "Sec-WebSocket-Extensions: x-bear\r\n\
                      Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover";
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket";
        wire.send(format!("{switched}\r\n{chosen}\r\n\r\n{head}")).await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    let offered = ["permessage-deflate; client_max_window_bits, x-bear; paws=\"4\"", "permessage-deflate"];
    let [first, second] = offered.map(|offer| format!("Sec-WebSocket-Extensions: {offer}\r\n"));
    client.send(format!("{HANDSHAKE}{first}{second}\r\n")).await;
    let response = client.read_response().await;
    assert_eq!(response.status, 101);
    assert_eq!(extensions(&response.head), ["x-bear", "permessage-deflate; client_no_context_takeover"]);
    let seen: Vec<String> = client.read_to_end().await.lines().map(str::to_owned).collect();
    assert_eq!(extensions(&seen), offered);
}

/// The values of `Sec-WebSocket-Extensions` in these header lines.
fn extensions(head: &[String]) -> Vec<&str> {
    let fields = head.iter().filter_map(|line| line.split_once(": "));
    fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-extensions")).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn a_websocket_handshake_without_a_token_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    match connect(&gateway, handshake(None)).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 401),
        other => panic!("not rejected: {:?}", other.err()),
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_backend_can_reject_a_websocket_handshake() {
    let backend =
        ScriptedBackend::responding_with("HTTP/1.1 403 Forbidden\r\nX-Why: no room\r\nContent-Length: 4\r\n\r\nfull");
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        client.send(format!("{HANDSHAKE}\r\n")).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("x-why"), response.body.as_str()), (403, Some("no room"), "full"));
    }
}

/// Pingora opened the tunnel before the backend had accepted it, and for any protocol (CVE-2026-2833). The next bytes
/// of the client then bypassed all checks.
#[tokio::test]
async fn a_websocket_to_an_http2_backend_is_rejected() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, "protocol = \"h2\"");
    let mut wire = Wire::connect(gateway.address()).await;
    wire.send(format!("{HANDSHAKE}\r\n")).await;
    let rejected = wire.read_response().await;
    assert_eq!(rejected.status, 501, "{rejected:?}");
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "protocol_not_supported");
    assert!(upstream.seen().is_empty(), "the backend must not receive it as a plain GET");
}

#[tokio::test]
async fn upgrades_to_other_protocols_are_ignored() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = format!("Authorization: Bearer {}\r\n", pair.access);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAA\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: foo\r\n",
        "GET /plain HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n",
        "HEAD /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "POST /plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n",
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{head}{token}\r\n{smuggled}")).await;
        assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 200"), "{head}");
        assert!(client.read_until("\r\n\r\n").await.contains("HTTP/1.1 401"), "read as a second request: {head}");
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 7, "{seen:?}");
    assert!(seen.iter().all(|seen| seen.uri == "/plain" && seen.header("upgrade").is_none()), "{seen:?}");
}

#[tokio::test]
async fn an_unexpected_101_response_is_a_bad_gateway() {
    const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    let backend = ScriptedBackend::responding_with(SWITCHED);
    let gateway = Gateway::public(backend.address, "");
    gateway.client().get("/").await.assert_rejected(502, "bad_gateway");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("{HANDSHAKE}\r\n")).await;
    assert_eq!(client.read_response().await.status, 502);
}

#[tokio::test]
async fn bytes_right_after_the_handshake_are_not_lost() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfrom backend")
            .await;
        wire.read_until("from client").await;
        wire.send(" and back").await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("{HANDSHAKE}\r\nfrom client")).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.header("upgrade")), (101, Some("websocket")));
    assert_eq!(client.read_to_end().await, "from backend and back");
}

#[tokio::test]
async fn a_closed_websocket_is_logged_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let mut socket = connect(&gateway, handshake(Some(&pair.access))).await.expect("a WebSocket");
    socket.send(Message::text("hello")).await.expect("sent");
    socket.next().await.expect("an echo").expect("a message");
    assert!(gateway.file("access.log").is_empty(), "the request is in flight");
    socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "bye".into() })).await.expect("closed");
    while let Some(Ok(_)) = socket.next().await {}
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["subject"].as_str()), (Some(101), Some("alice")));
    assert!(line["sent"].as_u64().is_some_and(|sent| sent >= 7), "{line}");
}

#[tokio::test]
async fn when_one_side_disconnects_the_other_is_closed() {
    for client_disconnects in [true, false] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_until("\r\n\r\n").await;
            wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
            if client_disconnects {
                wire.assert_closed().await;
            }
        });
        let gateway = Gateway::public(backend.address, "");
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{HANDSHAKE}\r\n")).await;
        assert_eq!(client.read_response().await.status, 101);
        if client_disconnects {
            drop(client);
        } else {
            client.assert_closed().await;
        }
        assert_eq!(gateway.log_lines(1).await[0]["status"], 101);
    }
}

/// The client never sends or reads anything. The gateway must not keep the tunnel when the backend is gone.
#[tokio::test]
async fn a_tunnel_ends_when_the_backend_disconnects() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("{HANDSHAKE}\r\n")).await;
    assert_eq!(client.read_response().await.status, 101);
    // The client's connection is open, and it never reads.
    assert_eq!(gateway.log_lines(1).await[0]["status"], 101);
    drop(client);
}

//! WebSockets over HTTP/2 (RFC 8441).

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::support::connection::{self, HttpConnection};
use crate::support::frames;

type Tunnelled = WebSocketStream<TokioIo<Upgraded>>;

/// An extended CONNECT with these headers.
pub(super) fn connect(path: &str, protocol: &'static str, headers: &[(&str, &str)]) -> Request<connection::Body> {
    let mut request = Request::builder().method(Method::CONNECT).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(connection::empty()).expect("a request");
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}

pub(super) async fn connection(gateway: &Gateway) -> HttpConnection {
    let mut connection = HttpConnection::http2(gateway.address()).await;
    // The client may send an extended CONNECT only after it has received the gateway's SETTINGS.
    connection.send(Request::get("/.well-known/jwks.json").body(connection::empty()).expect("a request")).await;
    connection
}

async fn socket(response: Response<Incoming>) -> Tunnelled {
    assert_eq!(response.status(), StatusCode::OK);
    assert!(
        ["connection", "upgrade", "sec-websocket-accept"].iter().all(|name| !response.headers().contains_key(*name))
    );
    let upgraded = hyper::upgrade::on(response).await.expect("a tunnel");
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
}

#[tokio::test]
async fn a_websocket_over_http2_opens_and_closes_with_its_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let bearer = format!("Bearer {}", pair.access);
    let mut connection = connection(&gateway).await;
    let response = connection.send(connect("/ws?room=1", "websocket", &[("authorization", &bearer)])).await;
    let mut socket = socket(response).await;
    assert_open(&mut socket).await;
    let large = Message::binary(vec![7; 1 << 20]);
    socket.send(large.clone()).await.expect("sent");
    assert!(socket.next().await.expect("an echo").expect("a message") == large);
    let seen = upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("GET", "/ws?room=1"));
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!((seen.header("sec-websocket-version"), seen.header("x-auth-subject")), (Some("13"), Some("alice")));
    assert_eq!((seen.host(), seen.header("sec-websocket-key").map(str::len)), ("gateway.test".to_owned(), Some(24)));

    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
    let line = gateway.log_lines(3).await.into_iter().find(|line| line["ended"] == "revoked").expect("its line");
    assert_eq!((line["method"].as_str(), line["protocol"].as_str()), (Some("CONNECT"), Some("HTTP/2")));
    assert_eq!((line["status"].as_u64(), line["path"].as_str()), (Some(200), Some("/ws")));
    let refused = connection.send(connect("/ws", "websocket", &[("authorization", &bearer)])).await;
    assert_eq!(refused.status(), 401, "the connection stays open");
}

#[tokio::test]
async fn a_websocket_token_can_be_in_a_subprotocol_or_a_cookie() {
    let upstream = Upstream::start();
    let more = "[[route]]\npath = \"/\"\ntoken_from = [\"websocket\", \"cookie:session\"]\n";
    let gateway = Gateway::with_config(&upstream, more);
    let pair = gateway.issue("alice", "").await;
    let mut connection = connection(&gateway).await;
    let protocols = format!("bearer, {}", pair.access);
    let response = connection.send(connect("/ws", "websocket", &[("sec-websocket-protocol", &protocols)])).await;
    assert_eq!(response.headers()["sec-websocket-protocol"], "bearer");
    assert_open(&mut socket(response).await).await;
    assert_eq!(upstream.only_request().header("authorization"), Some(&*format!("Bearer {}", pair.access)));

    let cookie = format!("session={}", pair.access);
    for (origin, status) in [("http://gateway.test", 200), ("http://evil.test", 403)] {
        let response = connection.send(connect("/ws", "websocket", &[("cookie", &cookie), ("origin", origin)])).await;
        assert_eq!(response.status(), status, "{origin}");
    }
    assert_eq!(connection.send(connect("/ws", "websocket", &[("cookie", &cookie)])).await.status(), 403);
    assert_eq!(connection.send(connect("/ws", "websocket", &[])).await.status(), 401);
}

/// A complete text frame without a payload.
const EMPTY_TEXT: [u8; 2] = [0x81, 0];

/// A backend that selects the last subprotocol and the first extension of the offer, and sends an empty message.
fn selecting_backend() -> ScriptedBackend {
    ScriptedBackend::start(|mut wire, _| async move {
        let head = wire.read_until("\r\n\r\n").await;
        let field = |wanted: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map_or("", |(_, value)| value).to_owned()
        };
        let accept = derive_accept_key(field("sec-websocket-key").as_bytes());
        let (protocols, extensions) = (field("sec-websocket-protocol"), field("sec-websocket-extensions"));
        let protocol = protocols.rsplit(", ").next().unwrap_or_default();
        let extension = extensions.split(", ").next().unwrap_or_default();
        wire.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\
             Sec-WebSocket-Extensions: {extension}\r\n\r\n"
        ))
        .await;
        wire.send(EMPTY_TEXT).await;
        wire.read_to_end().await;
    })
}

#[tokio::test]
async fn the_backend_chooses_the_subprotocol_and_the_extensions() {
    let backend = selecting_backend();
    let gateway = Gateway::public(backend.address, "");
    let mut connection = connection(&gateway).await;
    let offered =
        [("sec-websocket-protocol", "chat.v1, chat.v2"), ("sec-websocket-extensions", "x-bear; paws=4, x-wolf")];
    let response = connection.send(connect("/ws", "websocket", &offered)).await;
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat.v2");
    assert_eq!(response.headers()["sec-websocket-extensions"], "x-bear; paws=4");
    let mut socket = socket(response).await;
    assert_eq!(socket.next().await.expect("a message").expect("a message"), Message::text(""));
}

#[tokio::test]
async fn connect_opens_only_websockets() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut connection = connection(&gateway).await;
    for protocol in ["connect-udp", "webtransport", "h2c"] {
        assert_eq!(connection.send(connect("/ws", protocol, &[])).await.status(), 501, "{protocol}");
    }
    let own = connection.send(connect("/.well-known/jwks.json", "websocket", &[])).await;
    assert_eq!(own.status(), 501, "no tunnel to the gateway's own endpoints");
    assert!(upstream.seen().is_empty());
    assert_open(&mut socket(connection.send(connect("/ws", "websocket", &[])).await).await).await;
}

#[tokio::test]
async fn a_rejected_connect_is_logged_with_its_client() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[forwarding]\ntrusted = [\"127.0.0.0/8\"]\n");
    let forwarded = [("x-forwarded-for", "198.51.100.7")];
    let response = connection(&gateway).await.send(connect("/ws", "webtransport", &forwarded)).await;
    assert_eq!(response.status(), 501);
    let line = gateway.log_line(|line| line["reason"] == "protocol_not_supported").await;
    assert_eq!((&line["client"], &line["method"]), (&"198.51.100.7".into(), &"CONNECT".into()), "{line}");
}

#[tokio::test]
async fn a_websocket_opens_only_if_the_backend_switches_protocols() {
    for (response, status) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nfull", 403),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nopen", 501),
        // The key does not match that of the request.
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            502,
        ),
    ] {
        let backend = ScriptedBackend::responding_with(response);
        let gateway = Gateway::public(backend.address, "");
        let mut connection = connection(&gateway).await;
        assert_eq!(connection.send(connect("/ws", "websocket", &[])).await.status(), status, "{response}");
    }
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, "protocol = \"h2\"");
    let response = connection(&gateway).await.send(connect("/ws", "websocket", &[])).await;
    assert_eq!(response.status(), 501, "no WebSocket to an HTTP/2 backend");
}

/// `timeouts.write` limits clients that do not read. It does not apply to an idle tunnel.
#[tokio::test]
async fn an_idle_websocket_over_http2_stays_open() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nwrite = \"300ms\"");
    let mut socket = socket(connection(&gateway).await.send(connect("/ws", "websocket", &[])).await).await;
    assert_open(&mut socket).await;
    // The idle time that the test is about.
    tokio::time::sleep(3 * Duration::from_millis(300)).await;
    assert_open(&mut socket).await;
}

/// The client makes no room for what the backend sends.
#[tokio::test]
async fn a_websocket_without_window_ends_after_timeouts_write() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nwrite = \"300ms\"");
    let no_window = frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let fields = frames::block(&[(":protocol", "websocket"), ("sec-websocket-version", "13")]);
    let head = [frames::header_block("CONNECT", "/ws"), fields].concat();
    let request = frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &head);
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), no_window, request]).await;
    assert_eq!(frames::next(&mut client, &[frames::HEADERS]).await.payload[0], frames::OK);
    // Messages of 10,000 bytes, masked with zeros. The backend sends them back.
    let message = [b"\x82\xfe\x27\x10\0\0\0\0".as_slice(), &[b'x'; 10_000]].concat();
    for _ in 0..5 {
        client.send(frames::frame(frames::DATA, 0, 1, &message)).await;
    }
    let line = gateway.log_line(|line| line["path"] == "/ws").await;
    assert_eq!(line["status"], 200, "{line}");
    gateway.wait_for_metric("streams_closed_total", 1).await;
}

#[tokio::test]
async fn a_drain_closes_websockets_over_http2() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let mut connection = connection(&gateway).await;
    let mut socket = socket(connection.send(connect("/ws", "websocket", &[])).await).await;
    let draining = gateway.begin_drain();
    assert_eq!(close_frame(&mut socket).await.0, 1001);
    assert_drained(draining).await;
}

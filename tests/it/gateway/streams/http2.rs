//! WebSockets over HTTP/2 (RFC 8441).

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::support::session::{self, Session};

type Tunnelled = WebSocketStream<TokioIo<Upgraded>>;

/// An extended CONNECT with these headers.
fn connect(path: &str, protocol: &'static str, headers: &[(&str, &str)]) -> Request<session::Body> {
    let mut request = Request::builder().method(Method::CONNECT).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(session::empty()).expect("a request");
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}

async fn session(gateway: &Gateway) -> Session {
    let mut session = Session::http2(gateway.address()).await;
    // Until its SETTINGS have come, a client does not know that it may.
    session.send(Request::get("/.well-known/jwks.json").body(session::empty()).expect("a request")).await;
    session
}

async fn socket(answer: Response<Incoming>) -> Tunnelled {
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(["connection", "upgrade", "sec-websocket-accept"].iter().all(|name| !answer.headers().contains_key(*name)));
    let upgraded = hyper::upgrade::on(answer).await.expect("a tunnel");
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
}

#[tokio::test]
async fn a_websocket_opens_over_http2_and_ends_with_its_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let bearer = format!("Bearer {}", pair.access);
    let mut session = session(&gateway).await;
    let answer = session.send(connect("/ws?room=1", "websocket", &[("authorization", &bearer)])).await;
    let mut socket = socket(answer).await;
    echoes(&mut socket).await;
    let large = Message::binary(vec![7; 1 << 20]);
    socket.send(large.clone()).await.expect("sent");
    assert!(socket.next().await.expect("an echo").expect("a message") == large);
    let seen = upstream.only();
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("GET", "/ws?room=1"));
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!((seen.header("sec-websocket-version"), seen.header("x-auth-subject")), (Some("13"), Some("alice")));
    assert_eq!((seen.host(), seen.header("sec-websocket-key").map(str::len)), ("gateway.test".to_owned(), Some(24)));

    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(within_a_second(closed(&mut socket)).await, revoked());
    let line = gateway.log_lines(3).await.into_iter().find(|line| line["ended"] == "revoked").expect("its line");
    assert_eq!((line["method"].as_str(), line["protocol"].as_str()), (Some("CONNECT"), Some("HTTP/2")));
    assert_eq!((line["status"].as_u64(), line["path"].as_str()), (Some(200), Some("/ws")));
    let refused = session.send(connect("/ws", "websocket", &[("authorization", &bearer)])).await;
    assert_eq!(refused.status(), 401, "the connection lives on");
}

#[tokio::test]
async fn its_subprotocol_may_bring_the_token_and_a_cookie_needs_an_origin() {
    let upstream = Upstream::start();
    let more = "[[route]]\npath = \"/\"\ntoken_from = [\"websocket\", \"cookie:session\"]\n";
    let gateway = Gateway::with(&upstream, more);
    let pair = gateway.issue("alice", "").await;
    let mut session = session(&gateway).await;
    let protocols = format!("bearer, {}", pair.access);
    let answer = session.send(connect("/ws", "websocket", &[("sec-websocket-protocol", &protocols)])).await;
    assert_eq!(answer.headers()["sec-websocket-protocol"], "bearer");
    echoes(&mut socket(answer).await).await;
    assert_eq!(upstream.only().header("authorization"), Some(&*format!("Bearer {}", pair.access)));

    let cookie = format!("session={}", pair.access);
    for (origin, status) in [("http://gateway.test", 200), ("http://evil.test", 403)] {
        let answer = session.send(connect("/ws", "websocket", &[("cookie", &cookie), ("origin", origin)])).await;
        assert_eq!(answer.status(), status, "{origin}");
    }
    assert_eq!(session.send(connect("/ws", "websocket", &[("cookie", &cookie)])).await.status(), 403);
    assert_eq!(session.send(connect("/ws", "websocket", &[])).await.status(), 401);
}

/// The whole frame of a text message without a character.
const EMPTY_TEXT: [u8; 2] = [0x81, 0];

/// Takes the last of the subprotocols that it is offered and the first of the extensions, and says that it is there.
fn choosing() -> Scripted {
    Scripted::start(|mut wire, _| async move {
        let head = wire.hear_until("\r\n\r\n").await;
        let said = |wanted: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map_or("", |(_, value)| value).to_owned()
        };
        let accept = derive_accept_key(said("sec-websocket-key").as_bytes());
        let (protocols, extensions) = (said("sec-websocket-protocol"), said("sec-websocket-extensions"));
        let protocol = protocols.rsplit(", ").next().unwrap_or_default();
        let extension = extensions.split(", ").next().unwrap_or_default();
        wire.say(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\
             Sec-WebSocket-Extensions: {extension}\r\n\r\n"
        ))
        .await;
        wire.say(EMPTY_TEXT).await;
        wire.hear_to_the_end().await;
    })
}

#[tokio::test]
async fn the_backend_chooses_the_subprotocol_and_the_extensions() {
    let backend = choosing();
    let gateway = Gateway::open(backend.address, "");
    let mut session = session(&gateway).await;
    let offered =
        [("sec-websocket-protocol", "chat.v1, chat.v2"), ("sec-websocket-extensions", "x-bear; paws=4, x-wolf")];
    let answer = session.send(connect("/ws", "websocket", &offered)).await;
    assert_eq!(answer.headers()["sec-websocket-protocol"], "chat.v2");
    assert_eq!(answer.headers()["sec-websocket-extensions"], "x-bear; paws=4");
    let mut socket = socket(answer).await;
    assert_eq!(socket.next().await.expect("a message").expect("a message"), Message::text(""));
}

#[tokio::test]
async fn nothing_else_is_opened_by_connect() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut session = session(&gateway).await;
    for protocol in ["connect-udp", "webtransport", "h2c"] {
        assert_eq!(session.send(connect("/ws", protocol, &[])).await.status(), 501, "{protocol}");
    }
    let own = session.send(connect("/.well-known/jwks.json", "websocket", &[])).await;
    assert_eq!(own.status(), 501, "no tunnel into the gateway itself");
    assert!(upstream.seen().is_empty());
    echoes(&mut socket(session.send(connect("/ws", "websocket", &[])).await).await).await;
}

#[tokio::test]
async fn a_backend_that_does_not_switch_opens_nothing() {
    for (answer, status) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nfull", 403),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nopen", 501),
        // To a key that is not the one it was asked with.
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            502,
        ),
    ] {
        let backend = Scripted::answering(answer);
        let gateway = Gateway::open(backend.address, "");
        let mut session = session(&gateway).await;
        assert_eq!(session.send(connect("/ws", "websocket", &[])).await.status(), status, "{answer}");
    }
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"");
    let answer = session(&gateway).await.send(connect("/ws", "websocket", &[])).await;
    assert_eq!(answer.status(), 501, "no WebSocket to a backend of HTTP/2");
}

/// A tunnel over which nothing is said is not a client that makes no room.
#[tokio::test]
async fn silence_does_not_end_it() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[timeouts]\nwrite = \"300ms\"");
    let mut socket = socket(session(&gateway).await.send(connect("/ws", "websocket", &[])).await).await;
    echoes(&mut socket).await;
    tokio::time::sleep(3 * Duration::from_millis(300)).await;
    echoes(&mut socket).await;
}

#[tokio::test]
async fn a_drain_says_goodbye_here_too() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "");
    let mut session = session(&gateway).await;
    let mut socket = socket(session.send(connect("/ws", "websocket", &[])).await).await;
    let draining = gateway.begin_drain();
    assert_eq!(closed(&mut socket).await.0, 1001);
    let began = Instant::now();
    while !draining.is_finished() {
        assert!(began.elapsed() < PATIENCE, "a drain that lasts its whole deadline");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

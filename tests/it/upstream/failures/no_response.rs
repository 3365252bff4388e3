//! Backends without a connection, without a response, or without HTTP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Method;

use super::{log_entry, logged};
use crate::support::ports::ClosedPort;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// Returns an address that neither accepts nor rejects connections, because its queue is full as long as the sockets
/// live.
fn unreachable() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("an address");
    let mut held = vec![listener];
    for _ in 0..4 {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("nonblocking");
        // Never completes once the queue is full.
        let _ = socket.connect(&address);
        held.push(socket);
    }
    (address.as_socket().expect("an IP address"), held)
}

#[tokio::test]
async fn a_rejected_connection_is_a_502() {
    let closed = ClosedPort::new();
    for protocol in ["http1", "h2"] {
        let gateway = Gateway::public(closed.address, &format!("protocol = \"{protocol}\""));
        let answer = gateway.client().get("/").await;
        answer.assert_rejected(502, "bad_gateway");
        assert!(!answer.text().contains("127.0.0.1"), "the response must not name an address: {answer:?}");
        assert_eq!(logged(&gateway).await, log_entry(502, "upstream_connect", true));
    }
}

#[tokio::test]
async fn a_connection_timeout_is_a_504() {
    for protocol in ["http1", "h2"] {
        let (address, _held) = unreachable();
        let gateway = Gateway::public(address, &format!("protocol = \"{protocol}\"\nconnect_timeout = \"200ms\""));
        gateway.client().get("/").await.assert_rejected(504, "gateway_timeout");
        assert_eq!(logged(&gateway).await, log_entry(504, "upstream_connect_timeout", true));
    }
}

/// Requests that wait for the same connection fail with it, instead of one timeout after the other.
#[tokio::test]
async fn requests_for_one_http2_connection_fail_together() {
    let (address, _held) = unreachable();
    let gateway = Gateway::public(address, "protocol = \"h2\"\nconnect_timeout = \"500ms\"");
    let began = Instant::now();
    let asking = (0..12).map(|_| {
        let client = gateway.client();
        tokio::spawn(async move { client.get("/").await })
    });
    for answer in asking.collect::<Vec<_>>() {
        answer.await.expect("no panic").assert_rejected(504, "gateway_timeout");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_closed_without_a_response_is_a_502() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for method in [Method::GET, Method::POST] {
        gateway.client().send(method, "/close", Default::default()).await.assert_rejected(502, "bad_gateway");
    }
    assert_eq!(logged(&gateway).await, log_entry(502, "upstream_broken", true));
    assert_eq!(upstream.seen().len(), 2, "the gateway does not retry after a new connection was closed");
}

#[tokio::test]
async fn a_response_timeout_is_a_504() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let options = format!("protocol = \"{protocol}\"\n[timeouts]\nupstream_response = \"200ms\"");
        let gateway = Gateway::public(upstream.address, &options);
        gateway.client().get("/hang").await.assert_rejected(504, "gateway_timeout");
        assert_eq!(logged(&gateway).await, log_entry(504, "upstream_timeout", true));
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
}

#[tokio::test]
async fn an_invalid_response_is_not_forwarded() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        // A client would use one of the lengths, and take a part for the whole body.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        "HTTP/1.1 200",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "\0",
    ] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(garbage).await;
        });
        let gateway = Gateway::public(backend.address, "");
        for client in gateway.clients() {
            let answer = client.get("/").await;
            answer.assert_rejected(502, "bad_gateway");
        }
        let (status, reason, _) = logged(&gateway).await;
        assert_eq!((status, reason.as_str()), (502, "upstream_broken"), "{garbage:?}");
    }
}

#[tokio::test]
async fn interim_responses_are_not_the_final_response() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::public(backend.address, "");
    for client in gateway.clients() {
        assert_eq!(client.get("/").await.text(), "ok");
    }
}

/// Bytes after a response belong to no request, so the gateway does not use the connection again.
#[tokio::test]
async fn a_response_without_a_request_reaches_no_client() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        while wire.try_read_until("\r\n\r\n").await.is_some() {
            wire.send(format!("{ANSWER}{}", ANSWER.replace("mine", "evil"))).await;
        }
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..5 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.read_response().await.body, "mine");
    }
}

#[tokio::test]
async fn of_two_servers_the_running_one_responds() {
    let closed = ClosedPort::new();
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let servers = format!("{}\", \"http://{}", closed.address, upstream.address);
        let route = "[[route]]\npath = \"/\"\npublic = true";
        let gateway =
            Gateway::from_text(Gateway::config_text(&servers, &format!("protocol = \"{protocol}\"\n{route}")));
        for _ in 0..6 {
            assert_eq!(gateway.client().send(Method::POST, "/", "once".into()).await.text(), "once");
        }
        assert_eq!(upstream.seen().len(), 6);
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_get_a_503_with_retry_after() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "max_concurrent_requests = 1\nconnect_timeout = \"100ms\"");
    let mut first = Wire::connect(gateway.address()).await;
    let mut crowd = Vec::new();
    first.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // Two workers have one slot each, so at least one of three requests gets none.
    for _ in 0..2 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
        crowd.push(wire);
    }
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(503), Some("upstream_busy")));
}

//! No connection, no answer, or none that is HTTP.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use http::Method;

use super::{logged, told};
use crate::support::{Gateway, Scripted, Upstream, Wire};

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port")
}

/// An address that lets connections neither in nor down: its queue is full. Keeps that up as long as the sockets live.
fn unreachable() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("an address");
    let mut held = vec![listener];
    for _ in 0..4 {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("nonblocking");
        // Under way for ever, once the queue is full.
        let _ = socket.connect(&address);
        held.push(socket);
    }
    (address.as_socket().expect("an IP address"), held)
}

#[tokio::test]
async fn refused() {
    for protocol in ["http1", "h2"] {
        let gateway = Gateway::open(nobody(), &format!("protocol = \"{protocol}\""));
        let answer = gateway.client().get("/").await;
        answer.refused(502, "bad_gateway");
        assert!(!answer.text().contains("127.0.0.1"), "an address is nobody's business: {answer:?}");
        assert_eq!(logged(&gateway).await, told(502, "upstream_connect", true));
    }
}

#[tokio::test]
async fn unreachable_in_time() {
    for protocol in ["http1", "h2"] {
        let (address, _held) = unreachable();
        let gateway = Gateway::open(address, &format!("protocol = \"{protocol}\"\nconnect_timeout = \"200ms\""));
        gateway.client().get("/").await.refused(504, "gateway_timeout");
        assert_eq!(logged(&gateway).await, told(504, "upstream_connect_timeout", true));
    }
}

/// What one request has waited for in vain, those that waited with it need not wait for again, each in its turn.
#[tokio::test]
async fn requests_for_one_http2_connection_fail_together() {
    let (address, _held) = unreachable();
    let gateway = Gateway::open(address, "protocol = \"h2\"\nconnect_timeout = \"500ms\"");
    let began = Instant::now();
    let asking = (0..12).map(|_| {
        let client = gateway.client();
        tokio::spawn(async move { client.get("/").await })
    });
    for answer in asking.collect::<Vec<_>>() {
        answer.await.expect("no panic").refused(504, "gateway_timeout");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn closed_without_an_answer() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for method in [Method::GET, Method::POST] {
        gateway.client().send(method, "/close", Default::default()).await.refused(502, "bad_gateway");
    }
    assert_eq!(logged(&gateway).await, told(502, "upstream_broken", true));
    assert_eq!(upstream.seen().len(), 2, "a fresh connection that is closed is no reason to try again");
}

#[tokio::test]
async fn silent_for_too_long() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let options = format!("protocol = \"{protocol}\"\n[timeouts]\nupstream_response = \"200ms\"");
        let gateway = Gateway::open(upstream.address, &options);
        gateway.client().get("/hang").await.refused(504, "gateway_timeout");
        assert_eq!(logged(&gateway).await, told(504, "upstream_timeout", true));
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
}

#[tokio::test]
async fn what_is_not_http_is_not_passed_on() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        // A client would be told one of them, and take a part for the whole.
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
        let backend = Scripted::start(move |mut wire, _| async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(garbage).await;
        });
        let gateway = Gateway::open(backend.address, "");
        for client in gateway.clients() {
            let answer = client.get("/").await;
            answer.refused(502, "bad_gateway");
        }
        let (status, reason, _) = logged(&gateway).await;
        assert_eq!((status, reason.as_str()), (502, "upstream_broken"), "{garbage:?}");
    }
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let backend = Scripted::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::open(backend.address, "");
    for client in gateway.clients() {
        assert_eq!(client.get("/").await.text(), "ok");
    }
}

/// Whatever comes behind an answer is nobody's answer: the connection is not used again.
#[tokio::test]
async fn an_answer_to_nothing_is_given_to_nobody() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
    let backend = Scripted::start(|mut wire, _| async move {
        while wire.try_hear_until("\r\n\r\n").await.is_some() {
            wire.say(format!("{ANSWER}{}", ANSWER.replace("mine", "evil"))).await;
        }
    });
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..5 {
        client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.answer().await.body, "mine");
    }
}

#[tokio::test]
async fn of_two_servers_the_living_one_answers() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let servers = format!("{}\", \"http://{}", nobody(), upstream.address);
        let route = "[[route]]\npath = \"/\"\npublic = true";
        let gateway = Gateway::from_text(Gateway::text(&servers, &format!("protocol = \"{protocol}\"\n{route}")));
        for _ in 0..6 {
            assert_eq!(gateway.client().send(Method::POST, "/", "once".into()).await.text(), "once");
        }
        assert_eq!(upstream.seen().len(), 6);
    }
}

#[tokio::test]
async fn too_many_at_once_are_told_to_come_again() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "max_concurrent_requests = 1\nconnect_timeout = \"100ms\"");
    let mut first = Wire::connect(gateway.address()).await;
    let mut crowd = Vec::new();
    first.say("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // Two workers, one place each: of three, at least one finds none.
    for _ in 0..2 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.say("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
        crowd.push(wire);
    }
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(503), Some("upstream_busy")));
}

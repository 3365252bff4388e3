//! Frames that no honest client sends: requests that would smuggle others into HTTP/1, endless header blocks, and
//! broken TLS handshakes.

use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PRIORITY, RST_STREAM, WINDOW_UPDATE,
};
use crate::support::wait::eventually;
use crate::support::{Client, Gateway, HonestClient, Upstream, Wire};

type Fields = &'static [(&'static str, &'static str)];

const METHOD: (&str, &str) = (":method", "POST");
const SCHEME: (&str, &str) = (":scheme", "http");
const AUTHORITY: (&str, &str) = (":authority", "a");
const PATH: (&str, &str) = (":path", "/");

/// Requests that HTTP/2 forbids (RFC 9113 sections 8.2 and 8.3), or that would smuggle something into HTTP/1 (nginx
/// CVE-2026-42926, Netty CVE-2021-21295).
const REQUESTS: &[Fields] = &[
    // pseudo-headers
    &[SCHEME, AUTHORITY, PATH],
    &[METHOD, AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY],
    &[METHOD, SCHEME, PATH],
    &[METHOD, METHOD, SCHEME, AUTHORITY, PATH],
    &[METHOD, SCHEME, SCHEME, AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY, AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY, PATH, PATH],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":path", "/other")],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":status", "200")],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":x", "1")],
    &[METHOD, SCHEME, AUTHORITY, ("x", "1"), PATH],
    &[("x", "1"), METHOD, SCHEME, AUTHORITY, PATH],
    &[("", "1"), METHOD, SCHEME, AUTHORITY, PATH],
    &[(":method", ""), SCHEME, AUTHORITY, PATH],
    &[(":method", "GET /x HTTP/1.1\r\nX:"), SCHEME, AUTHORITY, PATH],
    &[(":method", "G T"), SCHEME, AUTHORITY, PATH],
    &[(":method", "CONNECT"), SCHEME, AUTHORITY, PATH],
    &[(":method", "CONNECT"), AUTHORITY],
    // Only WebSockets may use extended CONNECT.
    &[(":method", "CONNECT"), SCHEME, AUTHORITY, PATH, (":protocol", "connect-udp")],
    &[(":method", "CONNECT"), SCHEME, AUTHORITY, PATH, (":protocol", "")],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":protocol", "websocket")],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":authority", "b")],
    &[METHOD, SCHEME, AUTHORITY, PATH, (":Path", "/")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/"), ("x", "1"), (":path", "/")],
    &[METHOD, (":scheme", ""), AUTHORITY, PATH],
    &[METHOD, (":scheme", "http:"), AUTHORITY, PATH],
    &[METHOD, (":scheme", "file"), AUTHORITY, PATH],
    &[METHOD, (":scheme", "ftp"), AUTHORITY, PATH],
    &[METHOD, (":scheme", "http://a/x?"), AUTHORITY, PATH],
    // targets
    &[METHOD, SCHEME, AUTHORITY, (":path", "")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "*")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "x")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "http://a/")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/ HTTP/1.1\r\nHost: b\r\n\r\nGET /x")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a b")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\tb")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\0b")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\nb")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\rb")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\x7fb")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "#")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "?x")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "//x")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a%00b")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a%2fb")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/../x")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "/a\\..\\b")],
    // hosts
    &[METHOD, SCHEME, (":authority", ""), PATH],
    &[METHOD, SCHEME, (":authority", "a b"), PATH],
    &[METHOD, SCHEME, (":authority", "a,b"), PATH],
    &[METHOD, SCHEME, (":authority", "a/b"), PATH],
    &[METHOD, SCHEME, (":authority", "u@a"), PATH],
    &[METHOD, SCHEME, (":authority", "a\r\nX-Auth-Subject: root"), PATH],
    &[METHOD, SCHEME, (":authority", "a#b"), PATH],
    &[METHOD, SCHEME, (":authority", "a?b"), PATH],
    &[METHOD, SCHEME, (":authority", "a:b"), PATH],
    &[METHOD, SCHEME, (":authority", "a\tb"), PATH],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("host", "b")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("host", "a:80")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("host", "a"), ("host", "a")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("host", "")],
    // fields
    &[METHOD, SCHEME, AUTHORITY, PATH, ("", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("X", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x-Auth-Subject", "root")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("Content-Length", "0")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x\t", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x y", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x:", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x\r\ny", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x\0", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "1\r\nx-auth-subject: root")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "1\r\n\r\nGET /x HTTP/1.1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "1\ny: 1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "1\ry: 1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "1\0")],
    // hop-by-hop fields
    &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "x")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "close")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("keep-alive", "1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("proxy-connection", "x")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("upgrade", "websocket")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("transfer-encoding", "chunked")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("transfer-encoding", "identity")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("transfer-encoding", "")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "upgrade"), ("upgrade", "h2c")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("te", "gzip")],
    // lengths of a missing body
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "5")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "0"), ("content-length", "5")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "5"), ("content-length", "0")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "0, 0")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "x")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "-1")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "+0")],
    &[METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "18446744073709551616")],
];

/// The gateway rejects it and closes the connection.
#[tokio::test]
async fn a_request_for_two_hosts_closes_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let block = frames::block(&[(":method", "GET"), SCHEME, AUTHORITY, PATH, ("host", "b")]);
    let ambiguous = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), ambiguous]).await;
    let (mut has_response, mut has_goaway) = (false, false);
    while !(has_response && has_goaway) {
        let frame = frames::next(&mut client, &[HEADERS, GOAWAY]).await;
        has_response |= frame.kind == HEADERS;
        has_goaway |= frame.kind == GOAWAY;
    }
    client.read_to_end().await;
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn hostile_http2_requests_reach_no_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut accepted = Vec::new();
    for fields in REQUESTS {
        let request = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(fields));
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), request]).await;
        let response = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        if response.kind == HEADERS && response.payload.first() == Some(&OK) {
            accepted.push(format!("{fields:?}: {:?}", upstream.seen().pop()));
        }
    }
    eprintln!("{} hostile requests over HTTP/2", REQUESTS.len());
    assert!(accepted.is_empty(), "{} were accepted:\n{}", accepted.len(), accepted.join("\n"));
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    let good = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(&[METHOD, SCHEME, AUTHORITY, PATH]));
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), good]).await;
    assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], OK, "a valid one is accepted");
}

/// Trailers change nothing in the request: the gateway rejects or removes these.
#[tokio::test]
async fn trailers_cannot_change_the_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let begun = frames::frame(HEADERS, END_HEADERS, 1, &frames::block(&[METHOD, SCHEME, AUTHORITY, PATH]));
    let data = frames::frame(DATA, 0, 1, b"abc");
    let mut rejected = Vec::new();
    for field in [
        (":path", "/other"),
        (":method", "GET"),
        (":authority", "b"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("X", "1"),
        ("x", "1\r\ny: 1"),
        ("host", "b"),
        ("content-length", "5"),
    ] {
        let trailers = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(&[field]));
        let request = [frames::connection_preface(), begun.clone(), data.clone(), trailers];
        let mut client = frames::connect(gateway.address(), &request).await;
        let response = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        if response.kind == HEADERS && response.payload[0] == OK {
            let seen = upstream.only_request();
            assert_eq!((seen.method.as_str(), &*seen.uri, &*seen.host(), &*seen.body), ("POST", "/", "a", &b"abc"[..]));
            assert!(seen.trailers.is_none_or(|trailers| trailers.is_empty()), "{field:?}");
            upstream.forget();
        } else {
            assert!(upstream.seen().is_empty(), "{field:?}: {:?}", upstream.seen());
            rejected.push(field.0);
        }
    }
    assert_eq!(rejected, [":path", ":method", ":authority", "connection", "transfer-encoding", "X", "x"]);
}

/// An endless header block, with fields or empty (RUSTSEC-2024-0332).
#[tokio::test]
async fn an_endless_header_block_closes_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\npenalty_duration = \"0s\"");
    let mut honest = HonestClient::connect(&gateway).await;
    for piece in [frames::block(&[("x", "1")]).repeat(1000), Vec::new()] {
        let begun = frames::frame(HEADERS, END_STREAM, 1, &frames::header_block("GET", "/"));
        let more = frames::frame(CONTINUATION, 0, 1, &piece).repeat(100);
        honest
            .assert_served_during(async || {
                let mut attacker =
                    frames::connect(gateway.address(), &[frames::connection_preface(), begun.clone()]).await;
                let mut sent = 0;
                while sent < 100_000 && attacker.try_send(&more).await.is_ok() {
                    sent += 100;
                }
                attacker.read_to_end().await;
            })
            .await;
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

/// The client makes the gateway reset its streams (CVE-2025-8671, MadeYouReset) by frames that are invalid for one
/// stream only. The requests to the backend are cancelled.
#[tokio::test]
async fn a_client_that_provokes_resets_is_disconnected() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\npenalty_duration = \"0s\"");
    let mut honest = HonestClient::connect(&gateway).await;
    type Fault = fn(u32) -> Vec<u8>;
    let faults: [Fault; 4] = [
        |stream| frames::frame(WINDOW_UPDATE, 0, stream, &[0; 4]),
        |stream| frames::frame(WINDOW_UPDATE, 0, stream, &i32::MAX.to_be_bytes()),
        |stream| frames::frame(DATA, END_STREAM, stream, b"x"),
        |stream| frames::frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat()),
    ];
    for fault in faults {
        let flood: Vec<u8> = (0..3000)
            .flat_map(|number| [frames::get(2 * number + 1, "/hang"), fault(2 * number + 1)].concat())
            .collect();
        let attack = async || {
            let mut attacker = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
            let _ = attacker.try_send(&flood).await;
            let ended = frames::next(&mut attacker, &[GOAWAY]).await;
            assert_ne!(ended.payload[4..8], [0; 4], "an error, not a graceful shutdown");
        };
        honest.assert_served_during(attack).await;
    }
    eventually("the requests to the backend are cancelled", || upstream.in_flight() == 0).await;
}

/// Returns the ClientHello of a TLS client for the name `localhost`.
fn client_hello() -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(config.into(), name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("written to memory");
    hello
}

/// A handshake in records of one byte once crashed the process (CVE-2024-11738), and one with a close_notify in its
/// middle caused an endless loop (RUSTSEC-2024-0336).
#[tokio::test]
async fn a_broken_handshake_closes_only_its_own_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\ntls_handshake = \"500ms\"");
    let hello = client_hello();
    let (head, content) = hello.split_at(5);
    let record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[kind, head[1], head[2]], length.as_slice(), content].concat()
    };
    let in_bytes: Vec<u8> = content.iter().flat_map(|byte| record(22, &[*byte])).collect();
    let halves = content.split_at(content.len() / 2);
    let close_notify = record(21, &[1, 0]);
    for records in [
        in_bytes,
        [record(22, halves.0), record(22, halves.1)].concat(),
        [record(22, halves.0), record(22, &[]), record(22, halves.1)].concat(),
        [record(22, halves.0), close_notify.clone()].concat(),
        [record(22, halves.0), close_notify.clone(), record(22, halves.1)].concat(),
        [hello.as_slice(), &close_notify].concat(),
        [hello.as_slice(), &close_notify.repeat(100)].concat(),
        close_notify,
        record(23, b"x"),
        record(20, &[1]).repeat(100),
        [head, &content[..content.len() - 1]].concat(),
        vec![22, 3, 1, 0xff, 0xff],
    ] {
        let mut attacker = Wire::connect(gateway.tls_address()).await;
        let _ = attacker.try_send(&records).await;
        attacker.read_to_end().await;
        let honest = Client::http1(gateway.tls_address()).over_tls(&gateway.certificate());
        assert_eq!(honest.get("/").await.status, 200);
    }
    assert_eq!(upstream.seen().len(), 12);
}

//! Frames that no client sends: requests that would be other ones in HTTP/1, floods, and handshakes that never end.

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

/// What HTTP/2 does not have (RFC 9113 section 8.2 and 8.3), and what would smuggle something into the HTTP/1 behind it (nginx
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
    // WebSockets are carried; nothing else is.
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
    // of one connection
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
    // lengths of what is not there
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

/// It is refused, and nothing else is heard from whoever asks so.
#[tokio::test]
async fn a_request_for_two_hosts_is_the_last_of_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let block = frames::block(&[(":method", "GET"), SCHEME, AUTHORITY, PATH, ("host", "b")]);
    let ambiguous = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), ambiguous]).await;
    let (mut answered, mut told) = (false, false);
    while !(answered && told) {
        let frame = frames::next(&mut client, &[HEADERS, GOAWAY]).await;
        answered |= frame.kind == HEADERS;
        told |= frame.kind == GOAWAY;
    }
    client.read_to_end().await;
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_hostile_http2_request_goes_nowhere() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut taken = Vec::new();
    for fields in REQUESTS {
        let request = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(fields));
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), request]).await;
        let answer = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        if answer.kind == HEADERS && answer.payload.first() == Some(&OK) {
            taken.push(format!("{fields:?}: {:?}", upstream.seen().pop()));
        }
    }
    eprintln!("{} hostile requests over HTTP/2", REQUESTS.len());
    assert!(taken.is_empty(), "{} were taken:\n{}", taken.len(), taken.join("\n"));
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    let good = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(&[METHOD, SCHEME, AUTHORITY, PATH]));
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), good]).await;
    assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], OK, "what nothing is wrong with is accepted");
}

/// What stands behind a body changes nothing of the request: it is refused, or reaches nobody.
#[tokio::test]
async fn trailers_are_fields_and_nothing_else() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let begun = frames::frame(HEADERS, END_HEADERS, 1, &frames::block(&[METHOD, SCHEME, AUTHORITY, PATH]));
    let data = frames::frame(DATA, 0, 1, b"abc");
    let mut refused = Vec::new();
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
        let said = [frames::connection_preface(), begun.clone(), data.clone(), trailers];
        let mut client = frames::connect(gateway.address(), &said).await;
        let answer = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        if answer.kind == HEADERS && answer.payload[0] == OK {
            let seen = upstream.only_request();
            assert_eq!((seen.method.as_str(), &*seen.uri, &*seen.host(), &*seen.body), ("POST", "/", "a", &b"abc"[..]));
            assert!(seen.trailers.is_none_or(|trailers| trailers.is_empty()), "{field:?}");
            upstream.forget();
        } else {
            assert!(upstream.seen().is_empty(), "{field:?}: {:?}", upstream.seen());
            refused.push(field.0);
        }
    }
    assert_eq!(refused, ["connection", "transfer-encoding", "X", "x"]);
}

/// A header block that goes on and on, with something in it or without (RUSTSEC-2024-0332).
#[tokio::test]
async fn a_header_block_without_an_end_ends_its_connection() {
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
                let mut said = 0;
                while said < 100_000 && attacker.try_send(&more).await.is_ok() {
                    said += 100;
                }
                attacker.read_to_end().await;
            })
            .await;
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

/// The client makes the gateway reset its streams (CVE-2025-8671, MadeYouReset), by frames that are wrong for one stream
/// alone. What was asked of the backend is given up, and is bounded.
#[tokio::test]
async fn a_client_that_has_its_streams_reset_ends_its_connection_and_leaves_nothing_behind() {
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
            assert_ne!(ended.payload[4..8], [0; 4], "an error, not a goodbye");
        };
        honest.assert_served_during(attack).await;
    }
    eventually("what was asked of the backend is given up", || upstream.in_flight() == 0).await;
}

/// What a TLS client says first, for the name `localhost`.
fn client_hello() -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(config.into(), name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("memory takes it");
    hello
}

/// A handshake in records of one byte once ended the process (CVE-2024-11738), and one with a goodbye in its middle went
/// round for ever (RUSTSEC-2024-0336).
#[tokio::test]
async fn an_odd_handshake_ends_its_connection_and_nobody_elses() {
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
    for said in [
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
        let _ = attacker.try_send(&said).await;
        attacker.read_to_end().await;
        let neighbour = Client::http1(gateway.tls_address()).over_tls(&gateway.certificate());
        assert_eq!(neighbour.get("/").await.status, 200);
    }
    assert_eq!(upstream.seen().len(), 12);
}

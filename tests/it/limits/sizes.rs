//! Requests that are too large, one after the other and over every protocol, beside somebody whose are not. Where exactly each
//! limit lies is told in `framing` and `upstream_failures/bodies`.

use http::Method;

use crate::support::frames::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, RST_STREAM};
use crate::support::wait::eventually;
use crate::support::{Client, Gateway, HonestClient, Upstream, Wire};

const LIMITS: &str = "[limits]\nrequest_header_size = \"8KiB\"\nrequest_header_count = 20\nuri_size = \"1KiB\"\ntoken_size = \"1KiB\"\nbody_size = \"64KiB\"";

/// Runs the attack with each kind of client; whatever it asks is answered with `status`, and reaches nobody.
async fn is_refused_beside_an_honest_client(status: u16, attack: impl AsyncFn(Client) -> u16) {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, LIMITS);
    let attacks = async || {
        for client in gateway.clients() {
            let version = client.version();
            assert_eq!(attack(client).await, status, "{version:?}");
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attacks).await;
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

#[tokio::test]
async fn heads_of_too_many_bytes() {
    let field = "v".repeat(9000);
    let attack = async |client: Client| client.header("x-large", &field).get("/").await.status.as_u16();
    is_refused_beside_an_honest_client(431, attack).await;
}

#[tokio::test]
async fn heads_of_too_many_fields() {
    let attack = async |client: Client| {
        let client = (0..30).fold(client, |client, number| client.header(&format!("x-{number}"), "1"));
        client.get("/").await.status.as_u16()
    };
    is_refused_beside_an_honest_client(431, attack).await;
}

/// Where a browser may send each of its cookies by itself (RFC 9113 section 8.2.3).
#[tokio::test]
async fn fields_of_http2_are_counted_and_cookies_are_one() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, LIMITS);
    let request = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    for (fields, cookies, taken) in [(20, 0, true), (21, 0, false), (19, 50, true), (20, 50, false)] {
        let block = [&request[..], &[("x", "1")].repeat(fields), &[("cookie", "a=1")].repeat(cookies)].concat();
        let headers = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(&block));
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), headers]).await;
        let answer = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        assert_eq!(answer.payload[0] == OK, taken, "{fields} fields and {cookies} cookies: {answer:?}");
    }
    assert_eq!(upstream.seen().len(), 2);
    gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", 2).await;
}

#[tokio::test]
async fn targets_that_are_too_long() {
    let target = format!("/{}", "p".repeat(2000));
    let attack = async |client: Client| client.get(&target).await.status.as_u16();
    is_refused_beside_an_honest_client(414, attack).await;
}

#[tokio::test]
async fn bodies_that_say_how_much_too_large_they_are() {
    let body = bytes::Bytes::from(vec![b'x'; 65 << 10]);
    let attack = async |client: Client| client.send(Method::POST, "/", body.clone()).await.status.as_u16();
    is_refused_beside_an_honest_client(413, attack).await;
}

/// What goes on and on is refused when it has come as far as it may.
#[tokio::test]
async fn heads_and_bodies_that_do_not_say_when_they_end() {
    const MUCH: usize = 512 << 10;
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, LIMITS);
    let mut honest = HonestClient::connect(&gateway).await;
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    for (begin, more, status) in [
        ("GET /", "p", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "v", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: 1\r\n", 431),
        ("POST /swallow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk, 413),
    ] {
        let flood = more.repeat(MUCH / more.len());
        let attack = async || {
            let mut attacker = Wire::connect(gateway.address()).await;
            attacker.send(begin).await;
            // It may be closed before all of it is said.
            let _ = attacker.try_send(&flood).await;
            assert_eq!(attacker.read_response().await.status, status, "{begin:?}");
        };
        honest.assert_served_during(attack).await;
    }
    eventually("what was begun of the backend is given up", || upstream.in_flight() == 0).await;
}

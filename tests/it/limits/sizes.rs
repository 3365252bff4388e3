//! Requests that are too large, over each protocol, while an honest client is served. `protocols/framing` tests the
//! exact limits of heads.

use http::Method;

use crate::support::frames::{
    self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, RST_STREAM, connection_preface,
};
use crate::support::wait::eventually;
use crate::support::{Client, Gateway, HonestClient, Upstream, Wire};

const LIMITS: &str = "[limits]\nrequest_header_size = \"8KiB\"\nrequest_header_count = 20\n\
                      uri_size = \"1KiB\"\ntoken_size = \"1KiB\"\nbody_size = \"64KiB\"";

/// Runs the attack with each kind of client and expects `status`. The backend gets no request.
async fn assert_rejected_for_all_clients(status: u16, attack: impl AsyncFn(Client) -> u16) {
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
async fn a_head_with_too_many_bytes_is_rejected() {
    let field = "v".repeat(9000);
    let attack = async |client: Client| client.header("x-large", &field).get("/").await.status.as_u16();
    assert_rejected_for_all_clients(431, attack).await;
}

/// A list of fields with this size: 32 bytes more than their text for each (RFC 9113 section 6.5.2).
fn fields_of_size(size: usize) -> Vec<(&'static str, String)> {
    const OVERHEAD: usize = "x".len() + 32;
    let count = size / (OVERHEAD + 100);
    let longer = size - count * (OVERHEAD + 100);
    let (each, rest) = (longer / count, longer % count);
    (0..count).map(|number| ("x", "v".repeat(100 + each + usize::from(number < rest)))).collect()
}

fn block_of_size(first: &[(&str, &str)], size: usize) -> Vec<u8> {
    let of_first: usize = first.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    let more = fields_of_size(size - of_first);
    let more = more.iter().map(|(name, value)| (*name, value.as_str()));
    frames::block(&first.iter().copied().chain(more).collect::<Vec<_>>())
}

/// At the limit, the gateway rejects a head itself. At twice the limit, the HTTP/2 library does, with a bare 431.
#[tokio::test]
async fn the_limit_of_a_head_of_http2_is_exact() {
    const LIMIT: usize = 8 << 10;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequest_header_size = \"8KiB\"\nuri_size = \"8KiB\"");
    let get = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/path?query")];
    for (size, accepted, rejected) in
        [(LIMIT - 1, true, 0), (LIMIT, false, 1), (2 * LIMIT - 1, false, 2), (2 * LIMIT, false, 2)]
    {
        let head = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &block_of_size(&get, size));
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), head]).await;
        let response = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        assert_eq!((response.kind, response.payload[0] == OK), (HEADERS, accepted), "{size}: {response:?}");
        gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", rejected).await;
    }
    assert_eq!(upstream.seen().len(), 1);
}

/// The HTTP/2 library would cut off what is beyond its own limit, and forward the rest.
#[tokio::test]
async fn trailers_of_http2_have_the_limit_of_a_head() {
    const LIMIT: usize = 8 << 10;
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let config =
            format!("protocol = \"{protocol}\"\n[limits]\nrequest_header_size = \"8KiB\"\nuri_size = \"8KiB\"");
        let gateway = Gateway::public(upstream.address, &config);
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
        for (stream, size, accepted) in [(1, LIMIT - 1, true), (3, LIMIT, false), (5, 2 * LIMIT + 500, false)] {
            let post = frames::frame(HEADERS, END_HEADERS, stream, &frames::header_block("POST", "/upload"));
            let block = block_of_size(&[("x-sum", "7")], size);
            let trailers = frames::frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
            client.send([post, frames::frame(DATA, 0, stream, b"body"), trailers].concat()).await;
            let response = loop {
                let frame = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
                if frame.stream == stream {
                    break frame;
                }
            };
            assert_eq!(
                (response.kind, response.payload[0] == OK),
                (HEADERS, accepted),
                "{protocol} {size}: {response:?}"
            );
        }
        assert_eq!(upstream.seen().len(), 1, "{protocol}");
        gateway.wait_for_metric("rejections_total{reason=\"malformed_framing\"}", 2).await;
    }
}

#[tokio::test]
async fn a_head_with_too_many_fields_is_rejected() {
    let attack = async |client: Client| {
        let client = (0..30).fold(client, |client, number| client.header(&format!("x-{number}"), "1"));
        client.get("/").await.status.as_u16()
    };
    assert_rejected_for_all_clients(431, attack).await;
}

/// Over HTTP/2, a browser may send each cookie in its own field (RFC 9113 section 8.2.3).
#[tokio::test]
async fn all_cookie_fields_of_http2_count_as_one_field() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, LIMITS);
    let request = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    for (fields, cookies, accepted) in [(20, 0, true), (21, 0, false), (19, 50, true), (20, 50, false)] {
        let block = [&request[..], &[("x", "1")].repeat(fields), &[("cookie", "a=1")].repeat(cookies)].concat();
        let headers = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &frames::block(&block));
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), headers]).await;
        let response = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        assert_eq!(response.payload[0] == OK, accepted, "{fields} fields and {cookies} cookies: {response:?}");
    }
    assert_eq!(upstream.seen().len(), 2);
    gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", 2).await;
}

#[tokio::test]
async fn a_target_that_is_too_long_is_rejected() {
    let target = format!("/{}", "p".repeat(2000));
    let attack = async |client: Client| client.get(&target).await.status.as_u16();
    assert_rejected_for_all_clients(414, attack).await;
}

#[tokio::test]
async fn a_content_length_over_the_limit_is_rejected() {
    let body = bytes::Bytes::from(vec![b'x'; 65 << 10]);
    let attack = async |client: Client| client.send(Method::POST, "/", body.clone()).await.status.as_u16();
    assert_rejected_for_all_clients(413, attack).await;
}

/// Requests without a declared length are rejected when they reach the limit.
#[tokio::test]
async fn endless_heads_and_bodies_are_rejected() {
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
            // The gateway may close the connection before all of it is sent.
            let _ = attacker.try_send(&flood).await;
            assert_eq!(attacker.read_response().await.status, status, "{begin:?}");
        };
        honest.assert_served_during(attack).await;
    }
    eventually("the request to the backend is cancelled", || upstream.in_flight() == 0).await;
}

/// As every request that names two hosts.
#[tokio::test]
async fn a_large_head_with_two_hosts_ends_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nrequest_header_size = \"8KiB\"");
    let padding = "x".repeat(100);
    for fields in [0, 80] {
        let two_hosts = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("host", "b")];
        let block = frames::block(&[&two_hosts[..], &vec![("x-padding", &*padding); fields]].concat());
        let get = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
        let mut client = frames::connect(gateway.address(), &[connection_preface(), get]).await;
        frames::next(&mut client, &[GOAWAY]).await;
    }
}

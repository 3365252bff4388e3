//! Clients that send nothing, send too little, or never read.

use std::time::{Duration, Instant};

use http::Request;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::support::client::tls_connect;
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, END_STREAM, GOAWAY, HEADERS, RST_STREAM};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, HonestClient, Upstream, Wire};

/// Short timeouts. A client that sends request after request never reaches them.
fn with_short_timeouts(upstream: &Upstream) -> Gateway {
    Gateway::public_single_worker(
        upstream.address,
        "[timeouts]\nrequest_header = \"1s\"\nhttp2_idle = \"300ms\"\nbody_idle = \"300ms\"\nwrite = \"300ms\"",
    )
}

fn certificate(gateway: &Gateway) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate")
}

#[tokio::test]
async fn an_incomplete_request_header_times_out() {
    let upstream = Upstream::start();
    let gateway = with_short_timeouts(&upstream);
    let half_block = frames::frame(HEADERS, END_STREAM, 1, &frames::header_block("GET", "/"));
    let (preface, half_block) = (frames::connection_preface(), [frames::connection_preface(), half_block].concat());
    let incomplete = [
        b"".as_slice(),
        b"P",
        b"PR",
        b"PRI",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        frames::PREFACE.as_bytes(),
        &preface,
        &half_block,
    ];
    let attack = async || {
        let mut attackers = Vec::new();
        for bytes in incomplete.repeat(5) {
            let mut attacker = Wire::connect(gateway.address()).await;
            attacker.send(bytes).await;
            attackers.push(attacker);
        }
        for attacker in &mut attackers {
            attacker.read_to_end().await;
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    assert!(upstream.seen().is_empty());
}

/// The timeout is for the complete head: single bytes do not extend it.
#[tokio::test]
async fn a_head_sent_byte_by_byte_times_out() {
    let upstream = Upstream::start();
    let gateway = with_short_timeouts(&upstream);
    let attack = async || {
        let mut attacker = Wire::connect(gateway.address()).await;
        let began = Instant::now();
        for byte in "GET / HTTP/1.1\r\nHost: a\r\nX: ".bytes().chain(std::iter::repeat(b'x')) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if attacker.try_send([byte]).await.is_err() {
                break;
            }
            assert!(began.elapsed() < TIMEOUT, "single bytes keep the connection open");
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_client_silent_after_its_tls_handshake_times_out() {
    let upstream = Upstream::start();
    let gateway = with_short_timeouts(&upstream);
    let attack = async || {
        let mut attackers = Vec::new();
        for alpn in ["h2", "http/1.1"].repeat(5) {
            let stream = Wire::connect(gateway.tls_address()).await.stream;
            attackers.push(tls_connect(stream, certificate(&gateway), alpn).await.expect("a handshake"));
        }
        for attacker in &mut attackers {
            let mut received = Vec::new();
            // Any kind of close is good.
            let _ = tokio::time::timeout(TIMEOUT, attacker.read_to_end(&mut received)).await.expect("it ends");
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
}

#[tokio::test]
async fn a_body_that_stops_gets_408_and_closes_the_connection() {
    let upstream = Upstream::start();
    let gateway = with_short_timeouts(&upstream);
    let attack = async || {
        let mut attackers = Vec::new();
        for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"].repeat(5) {
            let mut attacker = Wire::connect(gateway.address()).await;
            attacker.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nhel")).await;
            attackers.push(attacker);
        }
        for attacker in &mut attackers {
            let response = attacker.read_response().await;
            assert_eq!((response.status, response.header("connection")), (408, Some("close")));
            attacker.assert_closed().await;
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
}

#[tokio::test]
async fn an_idle_http2_connection_closes_and_a_busy_one_stays() {
    let upstream = Upstream::start();
    // `timeouts.request_header` is long, so the client has time to reply to a ping.
    let gateway = Gateway::public(upstream.address, "[timeouts]\nhttp2_idle = \"300ms\"");
    let mut busy = HttpConnection::http2(gateway.address()).await;
    let (pieces, body) = connection::streamed();
    pieces.send("first").await;
    let mut response = busy.send(Request::post("/mirror").body(body).expect("a request")).await.into_body();

    let mut idle = HttpConnection::http2(gateway.address()).await;
    idle.send(Request::get("/").body(connection::empty()).expect("a request")).await;
    let uploading = async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            pieces.send("more").await;
            connection::next_chunk(&mut response).await.expect("a piece");
        }
    };
    tokio::join!(idle.assert_closed(), uploading);
    assert!(!busy.is_finished());
}

/// This client reads from its socket but never widens its windows, so it holds responses back without blocking the
/// socket.
#[tokio::test]
async fn a_response_without_window_for_its_body_is_cancelled() {
    let no_window = frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let timeouts = "[timeouts]\nwrite = \"300ms\"\nbody_idle = \"5s\"";
        let gateway =
            Gateway::public_single_worker(upstream.address, &format!("protocol = \"{protocol}\"\n{timeouts}"));
        let requests = [
            frames::connection_preface(),
            no_window.clone(),
            frames::get(1, "/large/1000000"),
            frames::get(3, "/slow"),
        ];
        let attack = async || {
            let mut attacker = frames::connect(gateway.address(), &requests).await;
            let cancelled = frames::next(&mut attacker, &[RST_STREAM, GOAWAY]).await;
            assert_eq!((cancelled.kind, cancelled.stream), (RST_STREAM, 1), "to {protocol}");
            // `/slow` waits for the backend, not for the client. Only the head of a response needs no window.
            attacker.send(frames::get(5, "/status/204")).await;
            let headers =
                [frames::next(&mut attacker, &[HEADERS]).await, frames::next(&mut attacker, &[HEADERS]).await];
            assert_eq!(headers.map(|frame| frame.stream), [5, 3]);
        };
        HonestClient::connect(&gateway).await.assert_served_during(attack).await;
        let line = gateway.log_line(|line| line["path"] == "/large/1000000").await;
        assert_eq!(line["complete"], false, "{line}");
    }
}

/// `timeouts.write` counts only while the gateway waits for the client.
#[tokio::test]
async fn a_slow_backend_does_not_count_as_a_slow_client() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway =
            Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n[timeouts]\nwrite = \"20ms\""));
        for client in gateway.clients() {
            assert_eq!(client.get("/drip").await.text(), "one two three");
            assert_eq!(client.get("/slow").await.text(), "hello");
        }
    }
}

/// Without this timeout, clients that never read could use up all connections.
#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    const LARGE: &str = "/large/100000000";
    let upstream = Upstream::start();
    let get = format!("GET {LARGE} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let http2 = [frames::connection_preface_with_max_windows(), frames::get(1, LARGE)].concat();
    for (request, tls) in [(&get, false), (&get, true), (&http2, false)] {
        let gateway = with_short_timeouts(&upstream);
        let address = if tls { gateway.tls_address() } else { gateway.address() };
        let attack = async || {
            let stream = Wire::connect(address).await.stream;
            let mut attacker: Box<dyn AsyncWrite + Unpin> = if tls {
                Box::new(tls_connect(stream, certificate(&gateway), "http/1.1").await.expect("a handshake"))
            } else {
                Box::new(stream)
            };
            attacker.write_all(request).await.expect("written");
            let line = gateway.log_line(|line| line["path"] == LARGE).await;
            assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
        };
        HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    }
}

/// The time counts from the last request, not from a check that happens to come after it.
#[tokio::test]
async fn an_idle_http2_connection_is_closed_in_time() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nhttp2_idle = \"4s\"");
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), frames::get(1, "/")]).await;
    frames::next(&mut client, &[HEADERS]).await;
    let idle_since = Instant::now();
    frames::next(&mut client, &[GOAWAY]).await;
    let idle = idle_since.elapsed().as_secs_f64();
    assert!((3.9..7.0).contains(&idle), "closed after {idle} s");
}

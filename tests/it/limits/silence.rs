//! Clients that say nothing, or not enough, or never listen.

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

/// But not with those who ask all the time.
fn impatient(upstream: &Upstream) -> Gateway {
    Gateway::public_single_worker(
        upstream.address,
        "[timeouts]\nrequest_header = \"1s\"\nhttp2_idle = \"300ms\"\nbody_idle = \"300ms\"\nwrite = \"300ms\"",
    )
}

fn certificate(gateway: &Gateway) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate")
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_is_closed() {
    let upstream = Upstream::start();
    let gateway = impatient(&upstream);
    let half_a_block = frames::frame(HEADERS, END_STREAM, 1, &frames::header_block("GET", "/"));
    let (hello, half_a_block) = (frames::connection_preface(), [frames::connection_preface(), half_a_block].concat());
    let beginnings = [
        b"".as_slice(),
        b"P",
        b"PR",
        b"PRI",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        frames::PREFACE.as_bytes(),
        &hello,
        &half_a_block,
    ];
    let attack = async || {
        let mut attackers = Vec::new();
        for said in beginnings.repeat(5) {
            let mut attacker = Wire::connect(gateway.address()).await;
            attacker.send(said).await;
            attackers.push(attacker);
        }
        for attacker in &mut attackers {
            attacker.read_to_end().await;
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    assert!(upstream.seen().is_empty());
}

/// The limit is for the whole head: a byte now and then does not extend it.
#[tokio::test]
async fn a_client_that_drips_its_head_is_closed() {
    let upstream = Upstream::start();
    let gateway = impatient(&upstream);
    let attack = async || {
        let mut attacker = Wire::connect(gateway.address()).await;
        let began = Instant::now();
        for byte in "GET / HTTP/1.1\r\nHost: a\r\nX: ".bytes().chain(std::iter::repeat(b'x')) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if attacker.try_send([byte]).await.is_err() {
                break;
            }
            assert!(began.elapsed() < TIMEOUT, "a drip is enough to stay");
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_client_that_is_silent_after_its_handshake_is_closed() {
    let upstream = Upstream::start();
    let gateway = impatient(&upstream);
    let attack = async || {
        let mut attackers = Vec::new();
        for alpn in ["h2", "http/1.1"].repeat(5) {
            let stream = Wire::connect(gateway.tls_address()).await.stream;
            attackers.push(tls_connect(stream, certificate(&gateway), alpn).await.expect("a handshake"));
        }
        for attacker in &mut attackers {
            let mut said = Vec::new();
            // How it ends does not matter here, but that it does.
            let _ = tokio::time::timeout(TIMEOUT, attacker.read_to_end(&mut said)).await.expect("it ends");
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
}

#[tokio::test]
async fn a_body_that_stops_is_answered_with_408_and_the_connection_ends() {
    let upstream = Upstream::start();
    let gateway = impatient(&upstream);
    let attack = async || {
        let mut attackers = Vec::new();
        for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"].repeat(5) {
            let mut attacker = Wire::connect(gateway.address()).await;
            attacker.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nhel")).await;
            attackers.push(attacker);
        }
        for attacker in &mut attackers {
            let answer = attacker.read_response().await;
            assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
            attacker.assert_closed().await;
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_and_a_busy_one_is_not() {
    let upstream = Upstream::start();
    // As long as it likes, it may take to answer a ping.
    let gateway = Gateway::public(upstream.address, "[timeouts]\nhttp2_idle = \"300ms\"");
    let mut busy = HttpConnection::http2(gateway.address()).await;
    let (pieces, body) = connection::streamed();
    pieces.send("first").await;
    let mut answer = busy.send(Request::post("/mirror").body(body).expect("a request")).await.into_body();

    let mut idle = HttpConnection::http2(gateway.address()).await;
    idle.send(Request::get("/").body(connection::empty()).expect("a request")).await;
    let uploading = async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            pieces.send("more").await;
            connection::next_chunk(&mut answer).await.expect("a piece");
        }
    };
    tokio::join!(idle.assert_closed(), uploading);
    assert!(!busy.is_finished());
}

/// Such a client reads everything, but never makes room for more: it holds answers back without holding up a socket.
#[tokio::test]
async fn an_answer_for_which_a_client_makes_no_room_is_given_up() {
    let no_room = frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let timeouts = "[timeouts]\nwrite = \"300ms\"\nbody_idle = \"5s\"";
        let gateway =
            Gateway::public_single_worker(upstream.address, &format!("protocol = \"{protocol}\"\n{timeouts}"));
        let said =
            [frames::connection_preface(), no_room.clone(), frames::get(1, "/large/1000000"), frames::get(3, "/slow")];
        let attack = async || {
            let mut attacker = frames::connect(gateway.address(), &said).await;
            let given_up = frames::next(&mut attacker, &[RST_STREAM, GOAWAY]).await;
            assert_eq!((given_up.kind, given_up.stream), (RST_STREAM, 1), "to {protocol}");
            // It is not the client who keeps this one waiting, and nothing but the answer's head needs no room.
            attacker.send(frames::get(5, "/status/204")).await;
            let answered =
                [frames::next(&mut attacker, &[HEADERS]).await, frames::next(&mut attacker, &[HEADERS]).await];
            assert_eq!(answered.map(|answer| answer.stream), [5, 3]);
        };
        HonestClient::connect(&gateway).await.assert_served_during(attack).await;
        let line = gateway.log_line(|line| line["path"] == "/large/1000000").await;
        assert_eq!(line["complete"], false, "{line}");
    }
}

/// Whom the gateway waits for makes the difference.
#[tokio::test]
async fn a_slow_backend_is_not_a_client_that_makes_no_room() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway =
            Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n[timeouts]\nwrite = \"20ms\""));
        for client in gateway.clients() {
            assert_eq!(client.get("/drip").await.text(), "one two three");
            assert_eq!(client.get("/slow").await.text(), "hello");
        }
    }
}

/// A gateway that waits for ever for clients to read can be filled up with them.
#[tokio::test]
async fn a_client_that_never_reads_its_answer_is_cut_off() {
    const LARGE: &str = "/large/100000000";
    let upstream = Upstream::start();
    let get = format!("GET {LARGE} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let http2 = [frames::connection_preface_with_max_windows(), frames::get(1, LARGE)].concat();
    for (said, tls) in [(&get, false), (&get, true), (&http2, false)] {
        let gateway = impatient(&upstream);
        let address = if tls { gateway.tls_address() } else { gateway.address() };
        let attack = async || {
            let stream = Wire::connect(address).await.stream;
            let mut attacker: Box<dyn AsyncWrite + Unpin> = match tls {
                true => Box::new(tls_connect(stream, certificate(&gateway), "http/1.1").await.expect("a handshake")),
                false => Box::new(stream),
            };
            attacker.write_all(said).await.expect("written");
            let line = gateway.log_line(|line| line["path"] == LARGE).await;
            assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
        };
        HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    }
}

//! Clients that send or take a byte now and then: each ends a silence, and none is enough.

use std::time::{Duration, Instant};

use http::Request;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, DATA, END_HEADERS, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, HonestClient, Upstream, Wire};

const PAUSE: Duration = Duration::from_millis(50);

fn demanding(upstream: &Upstream) -> Gateway {
    let limits = "[limits]\nmin_upload_rate = \"2KiB\"\nmin_download_rate = \"2KiB\"\n[timeouts]\nrate_window = \"300ms\"\nwrite = \"1s\"";
    Gateway::public(upstream.address, limits)
}

/// An honest client beside the attacker, with pauses as long as its: it is the amount that makes the difference.
async fn uploads(gateway: &Gateway) {
    let mut client = HttpConnection::http2(gateway.address()).await;
    let (pieces, body) = connection::streamed();
    let sending = async {
        for _ in 0..12 {
            tokio::time::sleep(PAUSE).await;
            pieces.send(vec![b'x'; 1000]).await;
        }
        drop(pieces);
    };
    let (answer, ()) = tokio::join!(client.send(Request::post("/mirror").body(body).expect("a request")), sending);
    assert_eq!(connection::text(answer.into_body()).await.len(), 12_000);
}

#[tokio::test]
async fn a_body_that_drips_is_refused_and_one_that_flows_in_pieces_is_not() {
    let upstream = Upstream::start();
    let gateway = demanding(&upstream);
    let attack = async {
        let mut attacker = Wire::connect(gateway.address()).await;
        attacker.send("POST /swallow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
        let began = Instant::now();
        while gateway.metric("bearward_rejections_total{reason=\"body_too_slow\"}").await == 0.0 {
            attacker.send("x").await;
            tokio::time::sleep(PAUSE).await;
            assert!(began.elapsed() < TIMEOUT, "a drip is enough to stay");
        }
        let answer = attacker.read_response().await;
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    };
    tokio::join!(attack, uploads(&gateway));
    gateway.wait_for_metric("rejections_total{reason=\"body_too_slow\"}", 1).await;
}

/// Also where the gateway reads the body itself, before anybody is asked for a token.
#[tokio::test]
async fn a_refresh_that_drips_is_refused() {
    let upstream = Upstream::start();
    let gateway = demanding(&upstream);
    let mut attacker = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
    attacker.send(frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/user/refresh"))).await;
    let drip = async {
        loop {
            tokio::time::sleep(PAUSE).await;
            attacker.send(frames::frame(DATA, 0, 1, b" ")).await;
            if gateway.metric("bearward_rejections_total{reason=\"body_too_slow\"}").await > 0.0 {
                return;
            }
        }
    };
    let (refused, ()) = tokio::join!(tokio::time::timeout(TIMEOUT, drip), uploads(&gateway));
    refused.expect("it is refused");
    let answer = frames::next(&mut attacker, &[HEADERS, RST_STREAM, GOAWAY]).await;
    assert_eq!((answer.kind, answer.stream), (HEADERS, 1));
}

/// A stream of messages may be silent for `timeouts.body_idle`, and its messages may be small.
#[tokio::test]
async fn the_messages_of_grpc_come_when_they_come() {
    let upstream = Upstream::start();
    let gateway = demanding(&upstream);
    let mut client = HttpConnection::http2(gateway.address()).await;
    let (pieces, body) = connection::streamed();
    let request = Request::post("/mirror").header("content-type", "application/grpc+proto").body(body);
    let sending = async {
        for _ in 0..12 {
            tokio::time::sleep(PAUSE).await;
            pieces.send("x").await;
        }
        drop(pieces);
    };
    let (answer, ()) = tokio::join!(client.send(request.expect("a request")), sending);
    assert_eq!(connection::text(answer.into_body()).await, "xxxxxxxxxxxx");
}

/// It makes room for one byte after the other. What is waiting to be sent is no smaller for it within `timeouts.write`.
#[tokio::test]
async fn an_answer_that_is_taken_byte_by_byte_is_given_up() {
    let upstream = Upstream::start();
    let gateway = demanding(&upstream);
    let narrow = frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    let said = [frames::connection_preface(), narrow, frames::get(1, "/large/1000000")];
    let mut attacker = frames::connect(gateway.address(), &said).await;
    let drip = async {
        loop {
            let frame = frames::next(&mut attacker, &[DATA, RST_STREAM, GOAWAY]).await;
            if frame.kind != DATA {
                return frame;
            }
            tokio::time::sleep(PAUSE).await;
            attacker.send(frames::frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await;
        }
    };
    let (given_up, ()) = tokio::join!(tokio::time::timeout(TIMEOUT, drip), uploads(&gateway));
    assert_eq!(given_up.expect("it is given up").kind, RST_STREAM);
    gateway.wait_for_metric("slow_clients_disconnected_total", 1).await;
}

/// Takes its answer more slowly than the backend gives it, for several times as long as `timeouts.write`; but it takes it.
#[tokio::test]
async fn a_long_answer_that_is_taken_slowly_is_taken_whole() {
    const LARGE: usize = 3_000_000;
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let more = format!("protocol = \"{protocol}\"\n[timeouts]\nwrite = \"300ms\"");
        let gateway = Gateway::public(upstream.address, &more);
        let said = [frames::connection_preface(), frames::get(1, &format!("/large/{LARGE}"))];
        let mut client = frames::connect(gateway.address(), &said).await;
        let (mut taken, mut owed) = (0, 0);
        while taken < LARGE {
            let frame = frames::next(&mut client, &[DATA, RST_STREAM, GOAWAY]).await;
            assert_eq!(frame.kind, DATA, "to {protocol}, after {taken} bytes: {frame:?}");
            taken += frame.payload.len();
            owed += u32::try_from(frame.payload.len()).expect("short");
            if owed >= 60_000 {
                tokio::time::sleep(PAUSE).await;
                let room = owed.to_be_bytes();
                let more = [frames::frame(WINDOW_UPDATE, 0, 0, &room), frames::frame(WINDOW_UPDATE, 0, 1, &room)];
                client.send(more.concat()).await;
                owed = 0;
            }
        }
        assert_eq!(gateway.metric("bearward_slow_clients_disconnected_total").await, 0.0);
    }
}

/// Over HTTP/1 it is the socket that is full. A small buffer of the client's makes for small steps.
#[tokio::test]
async fn a_client_that_reads_its_answer_too_slowly_is_cut_off() {
    let upstream = Upstream::start();
    let limits = "[limits]\nmin_download_rate = \"1MiB\"\n[timeouts]\nrate_window = \"300ms\"";
    let gateway = Gateway::public_single_worker(upstream.address, limits);
    let mut cut_off = 0_u32;
    let attack = async || {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let mut attacker = Wire::of(socket.connect(gateway.address()).await.expect("connected"));
        attacker.send("GET /large/100000000 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut space = vec![0; 16 * 1024];
        let drip = async {
            while attacker.stream.read(&mut space).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let cut = async {
            while gateway.metric("bearward_slow_clients_disconnected_total").await == f64::from(cut_off) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = drip => {}
            cut = tokio::time::timeout(TIMEOUT, cut) => cut.expect("it is cut off"),
        }
        cut_off += 1;
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    gateway.wait_for_metric("slow_clients_disconnected_total", cut_off.into()).await;
    let line = gateway.log_line(|line| line["path"] == "/large/100000000").await;
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
    assert_eq!(gateway.client().get("/large/3000000").await.body.len(), 3_000_000, "whoever reads gets it all");
}

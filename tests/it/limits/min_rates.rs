//! Minimum rates: clients that send or read single bytes. Each byte resets the idle timeouts, so only the rate stops
//! them.

use std::time::{Duration, Instant};

use http::Request;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, DATA, END_HEADERS, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, HonestClient, Upstream, Wire};

const PAUSE: Duration = Duration::from_millis(50);

const MIN_RATES: &str = "[limits]\nmin_upload_rate = \"2KiB\"\nmin_download_rate = \"2KiB\"\n\
                         [timeouts]\nrate_window = \"300ms\"\nwrite = \"1s\"";

fn with_min_rates(upstream: &Upstream) -> Gateway {
    Gateway::public(upstream.address, MIN_RATES)
}

/// An honest client with the same pauses as the attacker, but more data.
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
    let (response, ()) = tokio::join!(client.send(Request::post("/mirror").body(body).expect("a request")), sending);
    assert_eq!(connection::text(response.into_body()).await.len(), 12_000);
}

#[tokio::test]
async fn a_body_below_the_minimum_rate_is_rejected() {
    let upstream = Upstream::start();
    let gateway = with_min_rates(&upstream);
    let attack = async {
        let mut attacker = Wire::connect(gateway.address()).await;
        attacker.send("POST /swallow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
        let began = Instant::now();
        while gateway.metric("bearward_rejections_total{reason=\"body_too_slow\"}").await == 0.0 {
            attacker.send("x").await;
            tokio::time::sleep(PAUSE).await;
            assert!(began.elapsed() < TIMEOUT, "single bytes keep the request alive");
        }
        let response = attacker.read_response().await;
        assert_eq!((response.status, response.header("connection")), (408, Some("close")));
    };
    tokio::join!(attack, uploads(&gateway));
    gateway.wait_for_metric("rejections_total{reason=\"body_too_slow\"}", 1).await;
}

/// The gateway reads this body itself, before it checks the token.
#[tokio::test]
async fn a_refresh_below_the_minimum_rate_is_rejected() {
    let upstream = Upstream::start();
    let gateway = with_min_rates(&upstream);
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
    let (rejected, ()) = tokio::join!(tokio::time::timeout(TIMEOUT, drip), uploads(&gateway));
    rejected.expect("it is rejected");
    let response = frames::next(&mut attacker, &[HEADERS, RST_STREAM, GOAWAY]).await;
    assert_eq!((response.kind, response.stream), (HEADERS, 1));
}

/// A stream of messages may pause for `timeouts.body_idle`, and its messages may be small.
#[tokio::test]
async fn the_minimum_rate_does_not_apply_to_grpc_messages() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, &format!("protocol = \"h2\"\n{MIN_RATES}"));
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
    let (response, ()) = tokio::join!(client.send(request.expect("a request")), sending);
    assert_eq!(connection::text(response.into_body()).await, "xxxxxxxxxxxx");
}

/// The client widens its window byte by byte, so `timeouts.write` alone does not stop it.
#[tokio::test]
async fn a_response_read_byte_by_byte_is_cancelled() {
    let upstream = Upstream::start();
    let gateway = with_min_rates(&upstream);
    let tiny_window = frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    let request = [frames::connection_preface(), tiny_window, frames::get(1, "/large/1000000")];
    let mut attacker = frames::connect(gateway.address(), &request).await;
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
    let (cancelled, ()) = tokio::join!(tokio::time::timeout(TIMEOUT, drip), uploads(&gateway));
    assert_eq!(cancelled.expect("it is cancelled").kind, RST_STREAM);
    gateway.wait_for_metric("slow_clients_disconnected_total", 1).await;
}

/// The client reads more slowly than the backend sends, for several times `timeouts.write`, but it never stops.
#[tokio::test]
async fn a_long_response_read_slowly_arrives_completely() {
    const LARGE: usize = 3_000_000;
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let more = format!("protocol = \"{protocol}\"\n[timeouts]\nwrite = \"300ms\"");
        let gateway = Gateway::public(upstream.address, &more);
        let request = [frames::connection_preface(), frames::get(1, &format!("/large/{LARGE}"))];
        let mut client = frames::connect(gateway.address(), &request).await;
        let (mut received, mut unacknowledged) = (0, 0);
        while received < LARGE {
            let frame = frames::next(&mut client, &[DATA, RST_STREAM, GOAWAY]).await;
            assert_eq!(frame.kind, DATA, "to {protocol}, after {received} bytes: {frame:?}");
            received += frame.payload.len();
            unacknowledged += u32::try_from(frame.payload.len()).expect("short");
            if unacknowledged >= 60_000 {
                tokio::time::sleep(PAUSE).await;
                let increment = unacknowledged.to_be_bytes();
                let more =
                    [frames::frame(WINDOW_UPDATE, 0, 0, &increment), frames::frame(WINDOW_UPDATE, 0, 1, &increment)];
                client.send(more.concat()).await;
                unacknowledged = 0;
            }
        }
        assert_eq!(gateway.metric("bearward_slow_clients_disconnected_total").await, 0.0);
    }
}

/// Over HTTP/1 the socket is full instead of a window. The client has a small receive buffer, so it reads in small
/// steps.
#[tokio::test]
async fn a_client_below_the_download_rate_is_disconnected() {
    let upstream = Upstream::start();
    let limits = "[limits]\nmin_download_rate = \"1MiB\"\n[timeouts]\nrate_window = \"300ms\"";
    let gateway = Gateway::public_single_worker(upstream.address, limits);
    let mut disconnected = 0_u32;
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
        let disconnect = async {
            while gateway.metric("bearward_slow_clients_disconnected_total").await == f64::from(disconnected) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = drip => {}
            result = tokio::time::timeout(TIMEOUT, disconnect) => result.expect("it is disconnected"),
        }
        disconnected += 1;
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    gateway.wait_for_metric("slow_clients_disconnected_total", disconnected.into()).await;
    gateway.wait_for_metric("limit_hits_total{limit=\"limits.min_download_rate\"}", disconnected.into()).await;
    let line = gateway.log_line(|line| line["path"] == "/large/100000000").await;
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
    assert_eq!(
        gateway.client().get("/large/3000000").await.body.len(),
        3_000_000,
        "a client that reads gets all of it"
    );
}

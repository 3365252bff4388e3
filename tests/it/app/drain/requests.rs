//! Requests in flight when the drain begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::Version;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::{request, wait_for_drain, wait_until_closed};
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, DATA, GOAWAY, HEADERS, PING, RST_STREAM};
use crate::support::program::GatewayProcess;
use crate::support::wait::eventually;
use crate::support::{Backend, Client, Gateway, Upstream, Wire};

#[tokio::test]
async fn requests_in_flight_end_before_their_connections_close() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let (address, tls_address, admin) = (gateway.address(), gateway.tls_address(), gateway.admin_address());
    let mut slow = Wire::connect(address).await;
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut half = Wire::connect(address).await;
    half.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf").await;
    let multiplexed = HttpConnection::http2(address).await;
    let requests: Vec<_> = (0..5).map(|_| tokio::spawn(multiplexed.sender().send(request("/slow")))).collect();
    eventually("all requests are in flight", || upstream.in_flight() == 7).await;

    let draining = gateway.begin_drain();
    wait_until_closed(address).await;
    wait_until_closed(tls_address).await;
    let ready = Client::http1(admin).host("localhost").get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.json()["reason"].as_str()), (503, Some("starting or draining")));
    assert_eq!(
        Client::http1(admin).host("localhost").get("/healthz").await.status,
        200,
        "a supervisor must not kill a draining gateway"
    );

    half.send("half").await;
    for mut client in [slow, half] {
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (200, Some("close")), "{response:?}");
        client.assert_closed().await;
    }
    for response in requests {
        let response = response.await.expect("no panic").expect("a response");
        assert_eq!(connection::text(response.into_body()).await, "hello");
    }
    multiplexed.assert_closed().await;
    wait_for_drain(draining).await;
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"status\":200")).count(), 7, "{log}");
}

/// The gateway sends two GOAWAY frames (RFC 9113 section 6.8), so that it also accepts what the client sent before it
/// received the first.
#[tokio::test]
async fn an_http2_client_gets_goaway_and_all_its_responses() {
    let (release, requests) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (held, counter) = (release.clone(), requests.clone());
    let backend = Backend::start(Version::HTTP_11, move |_| {
        let held = held.clone();
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            held.notified().await;
            http::Response::new(connection::full("hello"))
        }
    })
    .await;
    let mut gateway = Gateway::public(backend.address, "");
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), frames::get(1, "/")]).await;
    eventually("the request is in flight", || requests.load(Ordering::SeqCst) == 1).await;

    let draining = gateway.begin_drain();
    let goaway = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
    assert_eq!(
        (goaway.kind, &goaway.payload[..8]),
        (GOAWAY, &goaway_after(i32::MAX)[..]),
        "no new streams, and no error"
    );
    client.send(frames::get(3, "/")).await;
    eventually("the late request is in flight", || requests.load(Ordering::SeqCst) == 2).await;
    let ping = frames::next(&mut client, &[PING, HEADERS]).await;
    assert_eq!(ping.kind, PING, "the PING shows when the client has received GOAWAY");
    client.send(frames::frame(PING, PING_ACK, 0, &ping.payload)).await;
    let goaway = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
    assert_eq!((goaway.kind, &goaway.payload[..8]), (GOAWAY, &goaway_after(3)[..]), "the last stream");

    let mut answered = Vec::new();
    for _ in 0..2 {
        release.notify_one();
        let head = frames::next(&mut client, &[HEADERS, DATA, RST_STREAM, GOAWAY]).await;
        let body = frames::next(&mut client, &[HEADERS, DATA, RST_STREAM, GOAWAY]).await;
        assert_eq!((head.kind, head.payload[0], head.stream), (HEADERS, frames::OK, body.stream));
        assert_eq!((body.kind, body.payload.as_slice()), (DATA, b"hello".as_slice()));
        answered.push(body.stream);
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 3]);
    client.read_to_end().await;
    wait_for_drain(draining).await;
}

/// The ACK flag of a PING frame.
const PING_ACK: u8 = 1;

/// The payload of GOAWAY: the last stream that the gateway accepts, and NO_ERROR.
fn goaway_after(stream: i32) -> Vec<u8> {
    [stream.to_be_bytes(), [0; 4]].concat()
}

#[tokio::test]
async fn a_hanging_request_is_cut_off_after_timeouts_drain() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "[timeouts]\ndrain = \"300ms\"");
    let mut hanging = Wire::connect(gateway.address()).await;
    hanging.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    eventually("the request is in flight", || upstream.in_flight() == 1).await;
    let began = Instant::now();
    wait_for_drain(gateway.begin_drain()).await;
    assert!((300..3000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(hanging.read_to_end().await, "");
    let log = gateway.file("access.log");
    assert!(log.contains("\"path\":\"/hang\"") && log.contains("\"complete\":false"), "{log}");
    eventually("the backend request is cancelled", || upstream.in_flight() == 0).await;
}

#[tokio::test]
async fn the_program_drains_on_sigterm_and_sigint() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::public_config(upstream.address, "")).expect("written");
    for signal in ["TERM", "INT"] {
        let process = GatewayProcess::start(folder.path());
        let address = process.addresses[0];
        let client = Client::http1(address);
        let slow = tokio::spawn(async move { client.get("/slow").await });
        eventually("the request is in flight", || upstream.in_flight() == 1).await;
        process.program.signal(signal);
        wait_until_closed(address).await;
        assert_eq!(slow.await.expect("no panic").text(), "hello");
        let (status, _, log) = process.program.wait();
        assert!(status.success(), "{log}");
        assert!(log.contains(&format!("draining signal=\"SIG{signal}\"")) && log.contains("drained"), "{log}");
        let log = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
        assert!(log.lines().last().expect("a line").contains("\"path\":\"/slow\""), "{log}");
    }
}

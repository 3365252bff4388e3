//! Floods of HTTP/2 frames without data or requests, and of requests that are cancelled as soon as they began.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::support::client::tls_connect;
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{
    self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::support::wait::eventually;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, HonestClient, Upstream, Wire};

const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
/// All attacks come from one address. `penalties` tests what happens to that address.
const NO_PENALTY: &str = "[limits]\npenalty_duration = \"0s\"";
const FLOOD: &str = "rejections_total{reason=\"http2_flood\"}";

/// Valid frames, for a connection on which stream 1 has requested `/hang`.
fn floods() -> [(&'static str, Vec<u8>); 7] {
    let same_window = [&[0, 4], 65_535_u32.to_be_bytes().as_slice()].concat();
    [
        ("PING (CVE-2019-9512)", frames::frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS (CVE-2019-9515)", frames::frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS that change windows", frames::frame(SETTINGS, 0, 0, &same_window)),
        ("PRIORITY (CVE-2019-9513)", frames::frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frames::frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of a stream", frames::frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("frames of an unknown kind", frames::frame(0x42, 0, 0, &[])),
    ]
}

async fn assert_served(client: &mut HttpConnection) {
    let response = client.send(Request::get("/").body(connection::empty()).expect("a request")).await;
    assert_eq!(response.status(), 200);
}

async fn assert_enhance_your_calm(attacker: &mut Wire, attack: &str) {
    let ended = frames::next(attacker, &[GOAWAY]).await;
    assert_eq!(ended.payload[4..8], ENHANCE_YOUR_CALM, "{attack}");
    attacker.read_to_end().await;
}

#[tokio::test]
async fn a_flood_of_frames_closes_only_its_own_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, NO_PENALTY);
    let mut honest = HonestClient::connect(&gateway).await;
    let mut count = 0;
    for (attack, frame) in floods() {
        let flood = frame.repeat(5000);
        honest
            .assert_served_during(async || {
                let begin = [frames::connection_preface(), frames::get(1, "/hang")];
                let mut attacker = frames::connect(gateway.address(), &begin).await;
                eventually("the request is in flight", || upstream.in_flight() == 1).await;
                let _ = attacker.try_send(&flood).await;
                assert_enhance_your_calm(&mut attacker, attack).await;
                eventually("the request to the backend is cancelled", || upstream.in_flight() == 0).await;
                count += 1;
            })
            .await;
        gateway.wait_for_metric(FLOOD, count).await;
    }
    assert_eq!(gateway.log_line(|line| line["reason"] == "http2_flood").await["client"], "127.0.0.1");
}

#[tokio::test]
async fn a_flood_over_tls_closes_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nhttp2_control_frames = 100");
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = Wire::connect(gateway.tls_address()).await.stream;
    let mut attacker = tls_connect(stream, certificate, "h2").await.expect("a handshake");
    let flood = frames::frame(PING, 0, 0, &[7; 8]).repeat(101);
    attacker.write_all(&[frames::connection_preface(), flood].concat()).await.expect("written");
    let mut received = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, attacker.read_to_end(&mut received)).await.expect("it ends");
    let goaway = [&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &ENHANCE_YOUR_CALM].concat();
    assert!(received.ends_with(&goaway), "{received:?}");
    assert_eq!(received[3], frames::SETTINGS, "the first frame of a server (RFC 9113 section 3.4)");
    gateway.wait_for_metric(FLOOD, 1).await;
}

/// The gateway has begun these requests, so h2 does not count their resets (a slow form of CVE-2023-44487).
#[tokio::test]
async fn cancelling_most_requests_closes_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, &format!("{NO_PENALTY}\nhttp2_resets = 20"));
    let cancel = |stream| frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    let mut count = 0;
    let attack = async || {
        let mut attacker = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
        for stream in (1..80).step_by(2) {
            eventually("the previous request is cancelled", || upstream.in_flight() == 0).await;
            attacker.send(frames::get(stream, "/hang")).await;
            eventually("the request is in flight", || upstream.in_flight() == 1).await;
            attacker.send(cancel(stream)).await;
        }
        assert_enhance_your_calm(&mut attacker, "resets").await;
        count += 1;
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    gateway.wait_for_metric(FLOOD, count).await;
    let hits = |limit: &str| format!("limit_hits_total{{limit=\"limits.{limit}\"}}");
    gateway.wait_for_metric(&hits("http2_resets"), count).await;
    gateway.wait_for_metric(&hits("http2_control_frames"), 0).await;

    // A client may cancel half of its requests without limit.
    let mut honest = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
    for turn in 0..100 {
        let (kept, dropped) = (4 * turn + 1, 4 * turn + 3);
        honest.send([frames::get(kept, "/"), frames::get(dropped, "/hang")].concat()).await;
        let response = frames::next(&mut honest, &[HEADERS, GOAWAY]).await;
        assert_eq!((response.kind, response.stream), (HEADERS, kept), "after {turn}");
        eventually("the request is in flight", || upstream.in_flight() == 1).await;
        honest.send(cancel(dropped)).await;
        eventually("the request is cancelled", || upstream.in_flight() == 0).await;
    }
}

/// Floods that h2 detects itself count in the same metric.
#[tokio::test]
async fn empty_data_and_empty_continuation_frames_are_floods() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, NO_PENALTY);
    let mut honest = HonestClient::connect(&gateway).await;
    let begun = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/swallow"));
    let empty_data = frames::frame(DATA, 0, 1, b"");
    let opened = frames::frame(HEADERS, END_STREAM, 1, &frames::header_block("GET", "/"));
    let empty_continuation = frames::frame(frames::CONTINUATION, 0, 1, b"");
    let mut count = 0;
    for (attack, begin, more) in [("DATA", begun, empty_data), ("CONTINUATION", opened, empty_continuation)] {
        let (begin, flood) = ([frames::connection_preface(), begin], more.repeat(100_000));
        honest
            .assert_served_during(async || {
                let mut attacker = frames::connect(gateway.address(), &begin).await;
                let _ = attacker.try_send(&flood).await;
                assert_enhance_your_calm(&mut attacker, attack).await;
                count += 1;
            })
            .await;
        gateway.wait_for_metric(FLOOD, count).await;
    }
}

/// A client may widen its windows for each piece of a response, and send a PING with it.
#[tokio::test]
async fn control_frames_along_with_data_are_no_flood() {
    const LARGE: usize = 3_000_000;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nhttp2_control_frames = 50");
    let begin = [frames::connection_preface(), frames::get(1, &format!("/large/{LARGE}"))];
    let mut client = frames::connect(gateway.address(), &begin).await;
    let (mut received, mut pieces) = (0, 0);
    while received < LARGE {
        let frame = frames::next(&mut client, &[DATA, RST_STREAM, GOAWAY]).await;
        assert_eq!(frame.kind, DATA, "after {received} bytes: {frame:?}");
        received += frame.payload.len();
        pieces += 1;
        let increment = u32::try_from(frame.payload.len()).expect("short").to_be_bytes();
        let widen = |stream| frames::frame(WINDOW_UPDATE, 0, stream, &increment);
        client.send([widen(0), widen(1), frames::frame(PING, 0, 0, &[1; 8])].concat()).await;
    }
    assert!(3 * pieces > 500, "the control frames of {pieces} pieces alone are too few for a flood");
}

/// After the disconnect, the gateway reads nothing more: to read a flood and discard it costs time, too.
#[tokio::test]
async fn the_gateway_stops_reading_after_a_flood() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let pings = frames::frame(PING, 0, 0, &[7; 8]).repeat(1000);
    assert_reading_stops(&gateway, &frames::connection_preface(), &pings, 8_000_000).await;
    gateway.wait_for_metric(FLOOD, 1).await;
}

/// Sends `begin`, and then `repeated` again and again until the gateway reads no more. Fails after `at_most` bytes.
async fn assert_reading_stops(gateway: &Gateway, begin: &[u8], repeated: &[u8], at_most: usize) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_send_buffer_size(64 * 1024).expect("a small buffer");
    let mut attacker = Wire::of(socket.connect(gateway.address()).await.expect("connected"));
    let mut sent = 0;
    attacker.send(begin).await;
    while attacker.try_send(repeated).await.is_ok() {
        sent += repeated.len();
        assert!(sent < at_most, "the gateway goes on reading");
    }
}

/// Over HTTP/1 too, the gateway reads only a limited amount after a rejected request.
#[tokio::test]
async fn the_gateway_stops_reading_after_a_rejected_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ";
    assert_reading_stops(&gateway, head, &[b'x'; 64 * 1024], 40_000_000).await;
    assert!(upstream.seen().is_empty());
    gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", 1).await;
}

/// Four connections flood a gateway without a limit on frames, so only turns let its one worker serve an honest client.
/// The time depends on the machine. The test measures how much the gateway does for the attackers in that time.
#[tokio::test]
async fn flooding_connections_take_turns_with_honest_clients() {
    const REQUESTS: usize = 10;
    /// About twenty turns on each of four connections for each request, and what is buffered between gateway and
    /// attackers.
    const AT_MOST: usize = 64 << 20;
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nhttp2_control_frames = 0");
    let mut honest = HttpConnection::http2(gateway.address()).await;
    assert_served(&mut honest).await;
    let attackers: Vec<_> = (0..4).map(|_| Flooder::start(gateway.address())).collect();
    eventually("all connections flood", || attackers.iter().all(|attacker| attacker.received() > 0)).await;
    let received = || attackers.iter().map(Flooder::received).sum::<usize>();
    let before = received();
    for _ in 0..REQUESTS {
        assert_served(&mut honest).await;
    }
    let replies = received() - before;
    assert!(replies < AT_MOST, "the attackers received {replies} bytes during {REQUESTS} requests");
    assert!(!attackers.iter().any(Flooder::is_finished), "a flooder stopped early");
}

/// Sends PING frames on one thread and reads the replies on another, until it is dropped.
struct Flooder {
    socket: TcpStream,
    received: Arc<AtomicUsize>,
    threads: [std::thread::JoinHandle<()>; 2],
}

impl Flooder {
    fn start(address: SocketAddr) -> Flooder {
        let socket = TcpStream::connect(address).expect("the gateway listens");
        let (mut writer, mut reader) = (socket.try_clone().expect("a socket"), socket.try_clone().expect("a socket"));
        let received = Arc::new(AtomicUsize::new(0));
        let counted = received.clone();
        let writing = std::thread::spawn(move || {
            let pings = frames::frame(PING, 0, 0, &[7; 8]).repeat(1000);
            writer.write_all(&frames::connection_preface()).expect("written");
            while writer.write_all(&pings).is_ok() {}
        });
        let reading = std::thread::spawn(move || {
            let mut space = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = reader.read(&mut space) {
                counted.fetch_add(read, Ordering::Relaxed);
            }
        });
        Flooder { socket, received, threads: [writing, reading] }
    }

    fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    fn is_finished(&self) -> bool {
        self.threads.iter().any(std::thread::JoinHandle::is_finished)
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // This ends both threads. It fails if the gateway has closed the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

//! HTTP/2 frames that ask for nothing, in floods; and requests that are cancelled as soon as they have begun.

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
/// One attack after the other from the same address: `pauses` has the stories about that.
const NO_PAUSE: &str = "[limits]\npenalty_duration = \"0s\"";
const FLOOD: &str = "rejections_total{reason=\"http2_flood\"}";

/// Frames that are right, each of them, and go to a connection on which `/hang` is asked for as stream 1.
fn floods() -> [(&'static str, Vec<u8>); 7] {
    let widen_nothing = [&[0, 4], 65_535_u32.to_be_bytes().as_slice()].concat();
    [
        ("PING (CVE-2019-9512)", frames::frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS (CVE-2019-9515)", frames::frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS that change windows", frames::frame(SETTINGS, 0, 0, &widen_nothing)),
        ("PRIORITY (CVE-2019-9513)", frames::frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frames::frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of a stream", frames::frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("frames of an unknown kind", frames::frame(0x42, 0, 0, &[])),
    ]
}

async fn is_served(neighbour: &mut HttpConnection) {
    let answer = neighbour.send(Request::get("/").body(connection::empty()).expect("a request")).await;
    assert_eq!(answer.status(), 200);
}

async fn is_told_to_calm_down(attacker: &mut Wire, attack: &str) {
    let ended = frames::next(attacker, &[GOAWAY]).await;
    assert_eq!(ended.payload[4..8], ENHANCE_YOUR_CALM, "{attack}");
    attacker.read_to_end().await;
}

#[tokio::test]
async fn a_flood_of_frames_ends_its_connection_and_nobody_elses() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, NO_PAUSE);
    let mut honest = HonestClient::connect(&gateway).await;
    let mut count = 0;
    for (attack, frame) in floods() {
        let flood = frame.repeat(5000);
        honest
            .assert_served_during(async || {
                let said = [frames::connection_preface(), frames::get(1, "/hang")];
                let mut attacker = frames::connect(gateway.address(), &said).await;
                eventually("the request is under way", || upstream.in_flight() == 1).await;
                let _ = attacker.try_send(&flood).await;
                is_told_to_calm_down(&mut attacker, attack).await;
                eventually("what was asked of the backend is given up", || upstream.in_flight() == 0).await;
                count += 1;
            })
            .await;
        gateway.wait_for_metric(FLOOD, count).await;
    }
    assert_eq!(gateway.log_line(|line| line["reason"] == "http2_flood").await["client"], "127.0.0.1");
}

#[tokio::test]
async fn a_flood_over_tls_is_no_other() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nhttp2_control_frames = 100");
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = Wire::connect(gateway.tls_address()).await.stream;
    let mut attacker = tls_connect(stream, certificate, "h2").await.expect("a handshake");
    let flood = frames::frame(PING, 0, 0, &[7; 8]).repeat(101);
    attacker.write_all(&[frames::connection_preface(), flood].concat()).await.expect("written");
    let mut heard = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, attacker.read_to_end(&mut heard)).await.expect("it ends");
    let goodbye = [&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &ENHANCE_YOUR_CALM].concat();
    assert!(heard.ends_with(&goodbye), "{heard:?}");
    gateway.wait_for_metric(FLOOD, 1).await;
}

/// Requests that the gateway has begun, which h2 does not count (CVE-2023-44487 at leisure).
#[tokio::test]
async fn whoever_cancels_most_of_what_is_asked_loses_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, &format!("{NO_PAUSE}\nhttp2_resets = 20"));
    let cancel = |stream| frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    let mut count = 0;
    let attack = async || {
        let mut attacker = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
        for stream in (1..80).step_by(2) {
            eventually("the one before is given up", || upstream.in_flight() == 0).await;
            attacker.send(frames::get(stream, "/hang")).await;
            eventually("the request is under way", || upstream.in_flight() == 1).await;
            attacker.send(cancel(stream)).await;
        }
        is_told_to_calm_down(&mut attacker, "resets").await;
        count += 1;
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    gateway.wait_for_metric(FLOOD, count).await;

    // Half of them may be cancelled, for ever.
    let mut honest = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
    for turn in 0..100 {
        let (kept, dropped) = (4 * turn + 1, 4 * turn + 3);
        honest.send([frames::get(kept, "/"), frames::get(dropped, "/hang")].concat()).await;
        let answer = frames::next(&mut honest, &[HEADERS, GOAWAY]).await;
        assert_eq!((answer.kind, answer.stream), (HEADERS, kept), "after {turn}");
        eventually("the request is under way", || upstream.in_flight() == 1).await;
        honest.send(cancel(dropped)).await;
        eventually("the request is given up", || upstream.in_flight() == 0).await;
    }
}

/// What h2 counts itself is in the same metric.
#[tokio::test]
async fn empty_data_and_empty_header_blocks_are_floods_as_well() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, NO_PAUSE);
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
                is_told_to_calm_down(&mut attacker, attack).await;
                count += 1;
            })
            .await;
        gateway.wait_for_metric(FLOOD, count).await;
    }
}

/// A client may widen its windows for every piece, and ask now and then whether we are there.
#[tokio::test]
async fn frames_that_come_with_something_are_no_flood() {
    const LARGE: usize = 3_000_000;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nhttp2_control_frames = 50");
    let said = [frames::connection_preface(), frames::get(1, &format!("/large/{LARGE}"))];
    let mut client = frames::connect(gateway.address(), &said).await;
    let (mut taken, mut pieces) = (0, 0);
    while taken < LARGE {
        let frame = frames::next(&mut client, &[DATA, RST_STREAM, GOAWAY]).await;
        assert_eq!(frame.kind, DATA, "after {taken} bytes: {frame:?}");
        taken += frame.payload.len();
        pieces += 1;
        let room = u32::try_from(frame.payload.len()).expect("short").to_be_bytes();
        let widen = |stream| frames::frame(WINDOW_UPDATE, 0, stream, &room);
        client.send([widen(0), widen(1), frames::frame(PING, 0, 0, &[1; 8])].concat()).await;
    }
    assert!(3 * pieces > 500, "{pieces} pieces would be a flood by themselves");
}

/// Whoever is cut off goes on sending, and finds that nobody takes it: to read a flood and throw it away is work, too.
#[tokio::test]
async fn a_flood_is_not_read_to_its_end() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let pings = frames::frame(PING, 0, 0, &[7; 8]).repeat(1000);
    is_not_read_to_its_end(&gateway, &frames::connection_preface(), &pings, 8_000_000).await;
    gateway.wait_for_metric(FLOOD, 1).await;
}

/// Says the opening, and then this again and again, until nobody takes it.
async fn is_not_read_to_its_end(gateway: &Gateway, opening: &[u8], again: &[u8], at_most: usize) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_send_buffer_size(64 * 1024).expect("a small buffer");
    let mut attacker = Wire::of(socket.connect(gateway.address()).await.expect("connected"));
    let mut sent = 0;
    attacker.send(opening).await;
    while attacker.try_send(again).await.is_ok() {
        sent += again.len();
        assert!(sent < at_most, "the gateway goes on reading");
    }
}

/// Nor what follows a refused request over HTTP/1, where others have time to say all they have.
#[tokio::test]
async fn what_goes_on_behind_a_refusal_is_not_read_to_its_end() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ";
    is_not_read_to_its_end(&gateway, head, &[b'x'; 64 * 1024], 40_000_000).await;
    assert!(upstream.seen().is_empty());
    gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", 1).await;
}

/// As fast as they can, without a limit: it is by turns alone that an honest client is heard, on the one worker that there is.
/// How long that takes is the machine's affair. What counts is how much the gateway does for the attackers meanwhile.
#[tokio::test]
async fn whoever_floods_on_many_connections_has_a_turn_on_each_and_no_more() {
    const REQUESTS: usize = 10;
    /// Some twenty turns on four connections for each request, and what may lie between the gateway and the attackers.
    const AT_MOST: usize = 64 << 20;
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nhttp2_control_frames = 0");
    let mut honest = HttpConnection::http2(gateway.address()).await;
    is_served(&mut honest).await;
    let attackers: Vec<_> = (0..4).map(|_| Flooder::start(gateway.address())).collect();
    eventually("all flood", || attackers.iter().all(|attacker| attacker.heard() > 0)).await;
    let heard = || attackers.iter().map(Flooder::heard).sum::<usize>();
    let before = heard();
    for _ in 0..REQUESTS {
        is_served(&mut honest).await;
    }
    let meanwhile = heard() - before;
    assert!(meanwhile < AT_MOST, "the attackers were answered {meanwhile} bytes during {REQUESTS} requests");
    assert!(!attackers.iter().any(Flooder::has_ended), "they flood to the end");
}

/// Sends PING after PING and reads the answers, each on a thread of its own, until it is dropped.
struct Flooder {
    socket: TcpStream,
    heard: Arc<AtomicUsize>,
    threads: [std::thread::JoinHandle<()>; 2],
}

impl Flooder {
    fn start(address: SocketAddr) -> Flooder {
        let socket = TcpStream::connect(address).expect("the gateway listens");
        let (mut says, mut hears) = (socket.try_clone().expect("a socket"), socket.try_clone().expect("a socket"));
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = heard.clone();
        let saying = std::thread::spawn(move || {
            let pings = frames::frame(PING, 0, 0, &[7; 8]).repeat(1000);
            says.write_all(&frames::connection_preface()).expect("written");
            while says.write_all(&pings).is_ok() {}
        });
        let hearing = std::thread::spawn(move || {
            let mut space = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = hears.read(&mut space) {
                counted.fetch_add(read, Ordering::Relaxed);
            }
        });
        Flooder { socket, heard, threads: [saying, hearing] }
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.threads.iter().any(std::thread::JoinHandle::is_finished)
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // Fails where the gateway has closed already. Both threads end by it.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

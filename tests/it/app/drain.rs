//! A gateway that ends: whoever was let in is served, nobody else is let in, and it takes no longer than it may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::{Request, Version};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::client::tls_connect;
use crate::support::frames::{self, DATA, GOAWAY, HEADERS, PING, RST_STREAM};
use crate::support::program::Served;
use crate::support::session::{self, Session, eventually};
use crate::support::wire::PATIENCE;
use crate::support::{Backend, Client, Gateway, Upstream, Wire};

/// Waits for the end without standing in its way: this thread's clients have their part in it.
async fn ended(draining: JoinHandle<()>) {
    tokio::time::timeout(PATIENCE, async {
        while !draining.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it ends");
    draining.join().expect("no panic");
}

async fn refuses_connections(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn request(path: &str) -> Request<session::Body> {
    Request::get(path).body(session::empty()).expect("a request")
}

#[tokio::test]
async fn requests_under_way_are_finished_and_their_connections_closed_after() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "");
    let (address, tls_address, admin) = (gateway.address(), gateway.tls_address(), gateway.admin_address());
    let mut slow = Wire::connect(address).await;
    slow.say("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut half = Wire::connect(address).await;
    half.say("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf").await;
    let many = Session::http2(address).await;
    let asked: Vec<_> = (0..5).map(|_| tokio::spawn(many.sender().send(request("/slow")))).collect();
    eventually("all were asked", || upstream.in_flight() == 7).await;

    let draining = gateway.begin_drain();
    refuses_connections(address).await;
    refuses_connections(tls_address).await;
    let ready = Client::http1(admin).get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.json()["reason"].as_str()), (503, Some("starting or draining")));
    assert_eq!(Client::http1(admin).get("/healthz").await.status, 200, "alive, and not to be killed");

    half.say("half").await;
    for mut client in [slow, half] {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{answer:?}");
        client.is_closed().await;
    }
    for answer in asked {
        let answer = answer.await.expect("no panic").expect("an answer");
        assert_eq!(session::text(answer.into_body()).await, "hello");
    }
    many.ends().await;
    ended(draining).await;
    let log = gateway.file("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"status\":200")).count(), 7, "{log}");
}

/// In two steps (RFC 9113 section 6.8): what the client asked before it knew is taken as well.
#[tokio::test]
async fn an_http2_client_is_told_by_goaway_and_all_it_asked_is_answered_before_the_end() {
    let (goes_on, asked) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (held, counts) = (goes_on.clone(), asked.clone());
    let backend = Backend::start(Version::HTTP_11, move |_| {
        let held = held.clone();
        counts.fetch_add(1, Ordering::SeqCst);
        async move {
            held.notified().await;
            http::Response::new(session::full("hello"))
        }
    })
    .await;
    let mut gateway = Gateway::open(backend.address, "");
    let mut client = frames::connect(gateway.address(), &[frames::hello(), frames::get(1, "/")]).await;
    eventually("it was asked", || asked.load(Ordering::SeqCst) == 1).await;

    let draining = gateway.begin_drain();
    let told = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
    assert_eq!((told.kind, &told.payload[..8]), (GOAWAY, &goaway_after(i32::MAX)[..]), "no more, and no error");
    client.say(frames::get(3, "/")).await;
    eventually("so was the one that came late", || asked.load(Ordering::SeqCst) == 2).await;
    let ping = frames::next(&mut client, &[PING, HEADERS]).await;
    assert_eq!(ping.kind, PING, "asks for a sign that the client knows");
    client.say(frames::frame(PING, PING_ACK, 0, &ping.payload)).await;
    let told = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
    assert_eq!((told.kind, &told.payload[..8]), (GOAWAY, &goaway_after(3)[..]), "which was the last");

    let mut answered = Vec::new();
    for _ in 0..2 {
        goes_on.notify_one();
        let head = frames::next(&mut client, &[HEADERS, DATA, RST_STREAM, GOAWAY]).await;
        let body = frames::next(&mut client, &[HEADERS, DATA, RST_STREAM, GOAWAY]).await;
        assert_eq!((head.kind, head.payload[0], head.stream), (HEADERS, frames::OK, body.stream));
        assert_eq!((body.kind, body.payload.as_slice()), (DATA, b"hello".as_slice()));
        answered.push(body.stream);
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 3]);
    client.hear_to_the_end().await;
    ended(draining).await;
}

/// The flag of an answer to a PING.
const PING_ACK: u8 = 1;

/// The last stream that is taken, and NO_ERROR.
fn goaway_after(stream: i32) -> Vec<u8> {
    [stream.to_be_bytes(), [0; 4]].concat()
}

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "");
    let mut sessions = Vec::new();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut session = Session::of(version, gateway.address()).await;
        session::text(session.send(request("/")).await.into_body()).await;
        sessions.push(session);
    }
    let silent = [Wire::connect(gateway.address()).await, Wire::connect(gateway.tls_address()).await];
    let began = Instant::now();
    let draining = gateway.begin_drain();
    for session in sessions {
        session.ends().await;
    }
    drop(silent);
    ended(draining).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A client over HTTP/1.1 that asks one thing after the other cannot know of the end before an answer tells it.
#[tokio::test]
async fn a_connection_that_is_busy_is_closed_with_an_answer_that_says_so() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "[[route]]\npath = \"/private\"");
    let mut clients = Vec::new();
    // What a backend answers, and what the gateway answers itself, at once.
    for (path, status) in [("/", 200), ("/private", 401)] {
        for _ in 0..4 {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut client = Wire::connect(gateway.address()).await;
            client.say(&request).await;
            assert_eq!(client.answer().await.header("connection"), None);
            clients.push(tokio::spawn(async move {
                loop {
                    client.say(&request).await;
                    let answer = client.answer().await;
                    assert_eq!(answer.status, status, "{answer:?}");
                    if answer.header("connection") == Some("close") {
                        return client.is_closed().await;
                    }
                }
            }));
        }
    }
    let draining = gateway.begin_drain();
    for client in clients {
        client.await.expect("no request is lost");
    }
    ended(draining).await;
}

/// An HTTP/2 client whose machine is asleep answers nothing, not even GOAWAY.
#[tokio::test]
async fn a_client_that_does_not_take_part_holds_nobody_up() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "");
    let asleep = frames::connect(gateway.address(), &[frames::hello()]).await;
    let began = Instant::now();
    ended(gateway.begin_drain()).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(asleep);
}

#[tokio::test]
async fn what_hangs_is_cut_when_the_time_is_up() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::open(upstream.address, "[timeouts]\ndrain = \"300ms\"");
    let mut hanging = Wire::connect(gateway.address()).await;
    hanging.say("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    eventually("it was asked", || upstream.in_flight() == 1).await;
    let began = Instant::now();
    ended(gateway.begin_drain()).await;
    assert!((300..3000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(hanging.hear_to_the_end().await, "");
    let log = gateway.file("access.log");
    assert!(log.contains("\"path\":\"/hang\"") && log.contains("\"complete\":false"), "{log}");
    eventually("the backend is told", || upstream.in_flight() == 0).await;
}

/// Its request may be on its way while the gateway learns that it is to end.
#[tokio::test]
async fn whoever_was_let_in_may_still_ask() {
    let upstream = Upstream::start();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut gateway = Gateway::open(upstream.address, "");
        let address = gateway.address();
        let newcomer = Newcomer::arrive(version, address).await.expect("let in");
        gateway.counts("connections_opened_total", 1).await;
        let draining = gateway.begin_drain();
        refuses_connections(address).await;
        newcomer.served().await;
        ended(draining).await;
    }
    let mut gateway = Gateway::open(upstream.address, "");
    let address = gateway.tls_address();
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = TcpStream::connect(address).await.expect("let in");
    let mut newcomer = tls_connect(stream, certificate, "http/1.1").await.expect("a handshake");
    let draining = gateway.begin_drain();
    refuses_connections(address).await;
    newcomer.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    let mut answer = String::new();
    newcomer.read_to_string(&mut answer).await.expect("an answer, and an orderly end");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    ended(draining).await;
}

/// One client after the other on a new connection each, and others that keep theirs, while the gateway ends: a request whose
/// connection was accepted is answered.
#[tokio::test]
async fn under_load_no_accepted_request_is_lost() {
    let upstream = Upstream::start();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut gateway = Gateway::open(upstream.address, "");
        let address = gateway.address();
        let answered = Arc::new(AtomicUsize::new(0));
        let looping: Vec<_> = (0..8)
            .map(|_| {
                let answered = answered.clone();
                tokio::spawn(async move {
                    while let Some(client) = Newcomer::arrive(version, address).await {
                        client.served().await;
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        eventually("the loops run", || answered.load(Ordering::SeqCst) > 100).await;
        let draining = gateway.begin_drain();
        for client in looping {
            client.await.expect("no request is lost");
        }
        ended(draining).await;
        let lines = gateway.file("access.log").lines().count();
        assert_eq!(lines, answered.load(Ordering::SeqCst), "one line for each answer");
    }
}

/// A client on a connection of its own.
struct Newcomer(TcpStream, Version);

impl Newcomer {
    /// `None` once nobody is let in.
    async fn arrive(version: Version, address: SocketAddr) -> Option<Newcomer> {
        TcpStream::connect(address).await.ok().map(|stream| Newcomer(stream, version))
    }

    async fn served(self) {
        let mut wire = Wire::of(self.0);
        match self.1 {
            Version::HTTP_2 => {
                wire.say([frames::hello(), frames::get(1, "/")].concat()).await;
                let answer = frames::next(&mut wire, &[DATA, RST_STREAM]).await;
                assert_eq!((answer.kind, answer.payload.as_slice()), (DATA, b"hello".as_slice()));
            }
            _ => {
                wire.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
                assert_eq!(wire.answer().await.body, "hello");
            }
        }
    }
}

#[tokio::test]
async fn the_program_drains_on_sigterm_and_ends_well() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::open_text(upstream.address, "")).expect("written");
    for signal in ["TERM", "INT"] {
        let served = Served::start(folder.path());
        let address = served.addresses[0];
        let client = Client::http1(address);
        let slow = tokio::spawn(async move { client.get("/slow").await });
        eventually("it was asked", || upstream.in_flight() == 1).await;
        served.program.signal(signal);
        refuses_connections(address).await;
        assert_eq!(slow.await.expect("no panic").text(), "hello");
        let (status, _, log) = served.program.wait();
        assert!(status.success(), "{log}");
        assert!(log.contains(&format!("draining signal=\"SIG{signal}\"")) && log.contains("drained"), "{log}");
        let log = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
        assert!(log.lines().last().expect("a line").contains("\"path\":\"/slow\""), "{log}");
    }
}

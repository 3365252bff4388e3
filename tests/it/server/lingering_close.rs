//! After the last response on a connection, the gateway never reads the client's bytes as a request.

use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::client::tls_connect;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// Longer than the gateway waits before it treats a connection as idle, and shorter than the lingering close. The pause
/// is under test.
const PAUSE: Duration = Duration::from_millis(350);

const SMUGGLED: &str = "POST /smuggled HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Length: 0\r\n\r\n";

/// Sends an upload that the gateway rejects, and later the rest of it in the form of a request.
async fn send_after_rejection(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream.write_all(b"POST /private HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n").await.expect("written");
    let mut received = Vec::new();
    while !received.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut received).await.expect("a response"), 0);
    }
    let response = String::from_utf8_lossy(&received).to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 401") && response.contains("connection: close"), "{response}");
    tokio::time::sleep(PAUSE).await;
    // The gateway may have closed the connection.
    let _ = stream.write_all(SMUGGLED.as_bytes()).await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("the connection ends");
    assert_eq!(rest, b"", "one response and no more");
}

#[tokio::test]
async fn the_rest_of_a_rejected_body_is_no_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[[route]]\npath = \"/private\"");
    send_after_rejection(TcpStream::connect(gateway.address()).await.expect("connected")).await;
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("connected");
    send_after_rejection(tls_connect(stream, certificate, "http/1.1").await.expect("a handshake")).await;
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

/// The backend responds before the end of the body, then closes.
#[tokio::test]
async fn the_rest_of_a_body_after_an_early_response_is_no_request() {
    let backend = ScriptedBackend::start(|mut wire, number| async move {
        let head = wire.read_until("\r\n\r\n").await;
        assert!(number == 0 && head.starts_with("POST /upload"), "{head}");
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        tokio::time::sleep(PAUSE).await;
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n0123456789").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")), "the end is announced");
    tokio::time::sleep(2 * PAUSE).await;
    let _ = client.try_send(SMUGGLED).await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(backend.connections(), 1);
}

/// The next request is already there, but not all of it.
#[tokio::test]
async fn a_pipelined_upload_does_not_end_the_request_before_it() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234";
    client.send(requests).await;
    let first = client.read_response().await;
    assert_eq!((first.status, first.header("connection")), (200, None));
    client.send("56789").await;
    let second = client.read_response().await;
    assert_eq!((second.status, second.header("connection")), (200, None));
}

#[tokio::test]
async fn a_complete_upload_keeps_its_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234").await;
        client.send("56789").await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (200, None));
    }
}

/// In HTTP/1.0 the end of the connection ends the response, also for a client that reads slowly.
#[tokio::test]
async fn a_slow_reader_of_http_1_0_sees_the_end() {
    const LARGE: usize = 8_000_000;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 * 1024).expect("set");
    let mut stream = socket.connect(gateway.address()).await.expect("connected");
    stream.write_all(format!("GET /large/{LARGE} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes()).await.expect("written");
    let (mut total, mut piece) = (0, vec![0; 256 * 1024]);
    let mut last = Instant::now();
    loop {
        let read = tokio::time::timeout(TIMEOUT, stream.read(&mut piece))
            .await
            .expect("the connection ends")
            .expect("readable");
        if read == 0 {
            break;
        }
        total += read;
        last = Instant::now();
        if total > LARGE / 2 {
            // The client reads slowly.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(total > LARGE, "{total}");
    assert!(last.elapsed() < Duration::from_secs(5), "the connection ends {:?} after the last byte", last.elapsed());
}

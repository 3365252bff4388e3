//! A connection that is ending goes on to its end: whatever its client still sends on it is no request.

use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::client::tls_connect;
use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Scripted, Upstream, Wire};

/// Longer than it takes a connection to count as idle, and shorter than its farewell.
const PAUSE: Duration = Duration::from_millis(350);

const SMUGGLED: &str = "POST /smuggled HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Length: 0\r\n\r\n";

/// A refused upload of which the client sends the rest later, as if it were a request.
async fn goes_on_after_a_refusal(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream.write_all(b"POST /private HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n").await.expect("written");
    let mut said = Vec::new();
    while !said.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut said).await.expect("an answer"), 0);
    }
    let said_text = String::from_utf8_lossy(&said).to_ascii_lowercase();
    assert!(said_text.starts_with("http/1.1 401") && said_text.contains("connection: close"), "{said_text}");
    tokio::time::sleep(PAUSE).await;
    // It may be gone by now.
    let _ = stream.write_all(SMUGGLED.as_bytes()).await;
    let mut more = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut more)).await.expect("it ends");
    assert_eq!(more, b"", "one answer and no more");
}

#[tokio::test]
async fn the_rest_of_a_refused_body_is_no_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[[route]]\npath = \"/private\"");
    goes_on_after_a_refusal(TcpStream::connect(gateway.address()).await.expect("connected")).await;
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("connected");
    goes_on_after_a_refusal(tls_connect(stream, certificate, "http/1.1").await.expect("a handshake")).await;
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

/// It is answered before its end, and then its backend goes.
#[tokio::test]
async fn the_rest_of_a_body_that_nobody_wanted_is_no_request() {
    let backend = Scripted::start(|mut wire, number| async move {
        let head = wire.hear_until("\r\n\r\n").await;
        assert!(number == 0 && head.starts_with("POST /upload"), "{head}");
        wire.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        tokio::time::sleep(PAUSE).await;
    });
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.say("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n0123456789").await;
    assert_eq!(client.answer().await.status, 200);
    tokio::time::sleep(2 * PAUSE).await;
    let _ = client.try_say(SMUGGLED).await;
    assert_eq!(client.hear_to_the_end().await, "");
    assert_eq!(backend.connections(), 1);
}

/// HTTP/1.0: the end of the connection is the end of the answer, also for whoever takes it slowly.
#[tokio::test]
async fn a_slow_reader_of_http_1_0_sees_the_end() {
    const LARGE: usize = 8_000_000;
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 * 1024).expect("set");
    let mut stream = socket.connect(gateway.address()).await.expect("connected");
    stream.write_all(format!("GET /large/{LARGE} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes()).await.expect("written");
    let (mut taken, mut piece) = (0, vec![0; 256 * 1024]);
    let mut last = Instant::now();
    loop {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.expect("it ends").expect("readable");
        if read == 0 {
            break;
        }
        taken += read;
        last = Instant::now();
        if taken > LARGE / 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(taken > LARGE, "{taken}");
    assert!(last.elapsed() < Duration::from_secs(5), "the end comes {:?} after the last byte", last.elapsed());
}

//! An idle connection releases its buffers without any effect on its client.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::tls_connect;
use crate::support::{Gateway, HonestClient, Upstream};

/// Longer than the gateway waits before it treats a connection as idle. The pauses are under test, so there is no
/// condition to wait for.
const IDLE: Duration = Duration::from_millis(1300);

/// Reads one complete response. The upstream responds to `/` with `hello`.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    while !text.ends_with("hello") {
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).await.expect("readable");
        assert_ne!(read, 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&chunk[..read]).expect("text"));
    }
    text
}

async fn send_with_long_pauses(mut stream: impl AsyncRead + AsyncWrite + Unpin, token: &str) {
    let head = format!("GET /a HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: Bearer {token}\r\n\r\n");
    let (first_half, second_half) = head.split_at(30);
    for _ in 0..2 {
        stream.write_all(head.as_bytes()).await.expect("written");
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
        tokio::time::sleep(IDLE).await;
    }
    // Half of a request header, and after a pause the rest.
    stream.write_all(first_half.as_bytes()).await.expect("written");
    tokio::time::sleep(IDLE).await;
    stream.write_all(second_half.as_bytes()).await.expect("written");
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    // One and a half request headers at once: the gateway keeps the half during the pause.
    stream.write_all(format!("{head}{first_half}").as_bytes()).await.expect("written");
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(IDLE).await;
    stream.write_all(second_half.as_bytes()).await.expect("written");
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_can_pause_between_and_within_requests() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let tcp_stream = TcpStream::connect(gateway.address()).await.expect("connected");
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("connected");
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let tls_stream = tls_connect(stream, certificate, "http/1.1").await.expect("a handshake");
    tokio::join!(send_with_long_pauses(tcp_stream, &pair.access), send_with_long_pauses(tls_stream, &pair.access));
    assert_eq!(upstream.seen().len(), 10);
}

/// An idle connection keeps nothing of what checks its requests, so this has to begin again with the next one.
#[tokio::test]
async fn a_request_after_a_pause_is_checked_as_the_first() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "");
    let mut stream = TcpStream::connect(gateway.address()).await.expect("connected");
    let upload = "POST /a HTTP/1.1\r\nHost: gateway.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(upload.as_bytes()).await.expect("written");
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
        tokio::time::sleep(IDLE).await;
    }
    // A proxy that takes the other length would see another end of this request.
    let ambiguous = "POST /a HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx";
    stream.write_all(ambiguous.as_bytes()).await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("the gateway closes the connection");
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_timeout() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\nrequest_header = \"1s\"\n");
    let attack = async || {
        let mut idle = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(gateway.address()).await.expect("connected");
            stream.write_all(b"GET /a HTTP/1.1\r\nHost: gateway.test\r\n\r\n").await.expect("written");
            answer(&mut stream).await;
            idle.push(stream);
        }
        for stream in &mut idle {
            let closed = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0; 16])).await;
            assert_eq!(closed.expect("the gateway closes the connection").expect("an orderly close"), 0);
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
}

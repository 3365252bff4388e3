//! A well-behaved client that keeps sending requests during an attack. The gateway must serve it all the time.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::tls_connect;
use super::wire::TIMEOUT;
use super::{Gateway, Wire};

/// Not the attacker's address, because clients with one address share its limits. All of `127.0.0.0/8` is this machine.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// Minimum number of responses during an attack.
const MIN_RESPONSES: usize = 5;

/// How long to wait between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// One TLS connection that stays open.
pub struct HonestClient {
    stream: TlsStream<TcpStream>,
    request: String,
}

impl HonestClient {
    pub async fn connect(gateway: &Gateway) -> HonestClient {
        let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
        let stream = Wire::connect_from(ADDRESS, gateway.tls_address()).await.stream;
        let stream = tls_connect(stream, certificate, "http/1.1").await.expect("a handshake");
        // The backend does not record `/honest`, so that tests can count the attacker's requests.
        HonestClient { stream, request: "GET /honest HTTP/1.1\r\nHost: localhost\r\n\r\n".into() }
    }

    pub fn bearer(self, token: &str) -> HonestClient {
        let request = self.request.replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n\r\n"));
        HonestClient { request, ..self }
    }

    /// Sends requests while `attack` runs, and asserts that each is served. Repeats the attack until there were at
    /// least [`MIN_RESPONSES`].
    pub async fn assert_served_during(&mut self, mut attack: impl AsyncFnMut()) {
        let (served, is_over) = (Cell::new(0), Cell::new(false));
        let attacking = async {
            while served.get() < MIN_RESPONSES {
                Box::pin(attack()).await;
            }
            is_over.set(true);
        };
        let requesting = async {
            while !is_over.get() {
                self.assert_served().await;
                served.set(served.get() + 1);
                // Paces the requests. Does not wait for anything.
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::join!(attacking, requesting);
    }

    /// Sends one request and asserts that it is served.
    pub async fn assert_served(&mut self) {
        self.stream.write_all(self.request.as_bytes()).await.expect("the gateway takes a request");
        let mut received = Vec::new();
        while !received.ends_with(b"hello") {
            let reading = tokio::time::timeout(TIMEOUT, self.stream.read_buf(&mut received));
            let read = reading.await.expect("a response in time").expect("a response");
            let text = String::from_utf8_lossy(&received);
            assert!(read > 0, "closed after {text:?}");
            assert!(received.iter().zip(b"HTTP/1.1 200 ").all(|(byte, expected)| byte == expected), "{text}");
        }
    }
}

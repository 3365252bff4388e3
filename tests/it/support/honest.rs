//! An honest client, who asks all the time while somebody attacks.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::tls_connect;
use super::wire::PATIENCE;
use super::{Gateway, Wire};

/// Its own, as who shares an address with an attacker shares its limits. All of `127.0.0.0/8` is this machine.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// So many answers, at the least, come while an attack goes on.
const ENOUGH: usize = 5;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// One connection over TLS, which stays open.
pub struct Honest {
    stream: TlsStream<TcpStream>,
    request: String,
}

impl Honest {
    pub async fn connect(gateway: &Gateway) -> Honest {
        let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
        let stream = Wire::connect_from(ADDRESS, gateway.tls_address()).await.stream;
        let stream = tls_connect(stream, certificate, "http/1.1").await.expect("a handshake");
        // What the backend does not note: a story is about what the attacker's requests come to.
        Honest { stream, request: "GET /honest HTTP/1.1\r\nHost: localhost\r\n\r\n".into() }
    }

    pub fn bearer(self, token: &str) -> Honest {
        let request = self.request.replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n\r\n"));
        Honest { request, ..self }
    }

    /// Asks from the first byte of the attack to its last, and is served each time. The attack is repeated until there were
    /// enough of these.
    pub async fn beside(&mut self, mut attack: impl AsyncFnMut()) {
        let (served, is_over) = (Cell::new(0), Cell::new(false));
        let attacking = async {
            while served.get() < ENOUGH {
                Box::pin(attack()).await;
            }
            is_over.set(true);
        };
        let asking = async {
            while !is_over.get() {
                self.is_served().await;
                served.set(served.get() + 1);
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::join!(attacking, asking);
    }

    /// Asks once.
    pub async fn is_served(&mut self) {
        self.stream.write_all(self.request.as_bytes()).await.expect("the gateway takes a request");
        let mut heard = Vec::new();
        while !heard.ends_with(b"hello") {
            let reading = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut heard));
            let read = reading.await.expect("an answer in time").expect("an answer");
            let text = String::from_utf8_lossy(&heard);
            assert!(read > 0, "closed after {text:?}");
            assert!(heard.iter().zip(b"HTTP/1.1 200 ").all(|(byte, good)| byte == good), "{text}");
        }
    }
}

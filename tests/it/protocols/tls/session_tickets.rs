//! When the gateway sends the session tickets of TLS 1.3.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{AcceptAnyCertificate, TLS13};
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream};

/// A separate write for the session tickets would cost a tenth of a handshake.
#[tokio::test]
async fn session_tickets_are_sent_with_the_first_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = ManualClient::handshake(&gateway).await;
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1").await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    let nothing = client.stream.try_read(&mut [0]).expect_err("the backend waits for the rest of the body");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    client.send(b"2").await;
    assert!(client.read_response().await.starts_with(b"HTTP/1.1 200 "));
    assert!(client.connection.tls13_tickets_received() > 0);
}

/// A client without a request gets its tickets too.
#[tokio::test]
async fn session_tickets_do_not_wait_for_a_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = ManualClient::handshake(&gateway).await;
    client.send(b"").await;
    while client.connection.tls13_tickets_received() == 0 {
        client.read().await;
    }
}

/// A TLS client that controls when its records are sent.
struct ManualClient {
    connection: ClientConnection,
    stream: TcpStream,
}

impl ManualClient {
    /// Completes the handshake, except for sending the client's last message.
    async fn handshake(gateway: &Gateway) -> ManualClient {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(TLS13).expect("versions");
        let config =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate)).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens");
        let mut client = ManualClient { connection, stream };
        while client.connection.is_handshaking() {
            client.send(b"").await;
            client.read().await;
        }
        client
    }

    /// Sends the bytes and all pending records in one write.
    async fn send(&mut self, what: &[u8]) {
        self.connection.writer().write_all(what).expect("room");
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).expect("room");
        }
        self.stream.write_all(&records).await.expect("the gateway reads");
    }

    async fn read(&mut self) {
        let mut records = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read_buf(&mut records));
        assert!(read.await.expect("something in time").expect("no reset") > 0, "closed");
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest).expect("room");
            self.connection.process_new_packets().expect("TLS");
        }
    }

    /// Returns the first bytes of a response.
    async fn read_response(&mut self) -> Vec<u8> {
        let mut received = vec![0; 1024];
        loop {
            self.read().await;
            if let Ok(read) = self.connection.reader().read(&mut received) {
                received.truncate(read);
                return received;
            }
        }
    }
}

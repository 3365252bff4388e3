//! A TLS client that controls when its records are sent and read.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{AcceptAnyCertificate, TLS13};
use crate::support::Gateway;
use crate::support::wire::TIMEOUT;

/// A TLS client that controls when its records are sent.
pub struct ManualClient {
    pub connection: ClientConnection,
    pub stream: TcpStream,
}

impl ManualClient {
    /// Completes the handshake, except for sending the client's last message.
    pub async fn handshake(gateway: &Gateway) -> ManualClient {
        Self::handshake_over(TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens")).await
    }

    pub async fn handshake_over(stream: TcpStream) -> ManualClient {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(TLS13).expect("versions");
        let config =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate)).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut client = ManualClient { connection, stream };
        while client.connection.is_handshaking() {
            client.send(b"").await;
            client.read().await;
        }
        client
    }

    /// Sends the bytes and all pending records in one write.
    pub async fn send(&mut self, what: &[u8]) {
        self.connection.writer().write_all(what).expect("room");
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).expect("room");
        }
        self.stream.write_all(&records).await.expect("the gateway reads");
    }

    /// Reads a few bytes of the socket. Returns how many.
    pub async fn read(&mut self) -> usize {
        let mut records = Vec::with_capacity(256);
        let read = tokio::time::timeout(TIMEOUT, self.stream.read_buf(&mut records));
        assert!(read.await.expect("something in time").expect("no reset") > 0, "closed");
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest).expect("room");
            self.connection.process_new_packets().expect("TLS");
        }
        records.len()
    }

    /// Makes room for the next records.
    pub async fn discard_response(&mut self) {
        while self.connection.process_new_packets().expect("TLS").plaintext_bytes_to_read() > 0 {
            self.read_response().await;
        }
    }

    /// Returns the next bytes of a response.
    pub async fn read_response(&mut self) -> Vec<u8> {
        let mut received = vec![0; 16 * 1024];
        loop {
            if let Ok(read) = self.connection.reader().read(&mut received) {
                received.truncate(read);
                return received;
            }
            self.read().await;
        }
    }
}

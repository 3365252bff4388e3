//! Connections that the gateway accepted before the drain, and requests that arrive on them later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Version;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{wait_for_drain, wait_until_closed};
use crate::support::client::tls_connect;
use crate::support::frames::{self, DATA, RST_STREAM};
use crate::support::wait::eventually;
use crate::support::{Client, Gateway, Upstream, Wire};

/// The request of an accepted connection may arrive after the drain begins.
#[tokio::test]
async fn an_accepted_connection_is_served_during_the_drain() {
    let upstream = Upstream::start();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut gateway = Gateway::public(upstream.address, "");
        let address = gateway.address();
        let client = NewClient::arrive(version, address).await.expect("accepted");
        gateway.wait_for_metric("connections_opened_total", 1).await;
        let draining = gateway.begin_drain();
        wait_until_closed(address).await;
        client.assert_served().await;
        wait_for_drain(draining).await;
    }
    let mut gateway = Gateway::public(upstream.address, "");
    let address = gateway.tls_address();
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let stream = TcpStream::connect(address).await.expect("accepted");
    let mut client = tls_connect(stream, certificate, "http/1.1").await.expect("a handshake");
    let draining = gateway.begin_drain();
    wait_until_closed(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    let mut response = String::new();
    client.read_to_string(&mut response).await.expect("a response, and an orderly close");
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("connection: close"), "{response}");
    wait_for_drain(draining).await;
}

/// Clients open one connection after the other while the gateway drains. Each connection that the gateway has accepted
/// gets its response. The kernel resets those that arrive between the last `accept` and the end of the
/// listener.
#[tokio::test]
async fn under_load_no_accepted_request_is_lost() {
    let upstream = Upstream::start();
    let mut with_resets = 0;
    for version in [Version::HTTP_11, Version::HTTP_2].repeat(3) {
        let resets = drain_under_load(&upstream, version).await;
        with_resets += usize::from(resets > 0);
    }
    assert!(with_resets <= 1, "the gateway closes its listener before it has accepted who waits: {with_resets} of 6");
}

/// Returns the number of connections that were reset without a response.
async fn drain_under_load(upstream: &Upstream, version: Version) -> usize {
    let mut gateway = Gateway::public(upstream.address, "");
    let (address, admin) = (gateway.address(), gateway.admin_address());
    // The drain waits for it, so that the counts can be read.
    let mut half = Wire::connect(address).await;
    half.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf").await;
    let [answered, reset] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let looping: Vec<_> = (0..8)
        .map(|_| {
            let [answered, reset] = [&answered, &reset].map(Arc::clone);
            tokio::spawn(async move {
                while let Some(client) = NewClient::arrive(version, address).await {
                    let count = if client.try_request().await { &answered } else { &reset };
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    eventually("the loops run", || answered.load(Ordering::SeqCst) > 100).await;
    let draining = gateway.begin_drain();
    for client in looping {
        client.await.expect("each response is whole");
    }
    let [answered, reset] = [answered, reset].map(|count| count.load(Ordering::SeqCst));
    let metrics = Client::http1(admin).host("localhost").get("/metrics").await.text();
    let accepted = format!("\nbearward_connections_opened_total {}\n", answered + 1);
    assert!(metrics.contains(&accepted), "{answered} answered, {reset} reset, and {metrics}");
    half.send("half").await;
    assert_eq!(half.read_response().await.status, 200);
    wait_for_drain(draining).await;
    let lines = gateway.file("access.log").lines().count();
    assert_eq!(lines, answered + 1, "one line for each response");
    reset
}

/// A client with its own connection.
struct NewClient(TcpStream, Version);

impl NewClient {
    /// `None` once the gateway stops listening.
    async fn arrive(version: Version, address: SocketAddr) -> Option<NewClient> {
        TcpStream::connect(address).await.ok().map(|stream| NewClient(stream, version))
    }

    async fn assert_served(self) {
        assert!(self.try_request().await, "closed without a response");
    }

    /// Returns false if the connection is closed without a byte of a response. Panics if the response is another one.
    async fn try_request(self) -> bool {
        let mut wire = Wire::of(self.0);
        match self.1 {
            Version::HTTP_2 => {
                if !wire.is_answered([frames::connection_preface(), frames::get(1, "/")].concat()).await {
                    return false;
                }
                let response = frames::next(&mut wire, &[DATA, RST_STREAM]).await;
                assert_eq!((response.kind, response.payload.as_slice()), (DATA, b"hello".as_slice()));
            }
            _ => {
                if !wire.is_answered("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await {
                    return false;
                }
                assert_eq!(wire.read_response().await.body, "hello");
            }
        }
        true
    }
}

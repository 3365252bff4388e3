//! Clients that read slowly over TLS: what waits for them, and for how long.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};

use super::manual_client::ManualClient;
use crate::support::program::GatewayProcess;
use crate::support::{Gateway, Upstream};

/// Connects with small buffers on both sides: if the client accepts only small segments, the kernel gives the gateway a
/// small send buffer.
async fn connect(address: SocketAddr, segment: u32, receive_buffer: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    SockRef::from(&socket).set_tcp_mss(segment).expect("set");
    socket.set_recv_buffer_size(receive_buffer).expect("set");
    socket.connect(address).await.expect("the gateway listens")
}

/// The first write behind the handshake does not fit into the socket. The rest of the response must wait in the
/// backend, not in the gateway.
#[tokio::test]
async fn a_slow_reader_after_a_handshake_fills_no_memory() {
    const DURATION: Duration = Duration::from_secs(3);
    let upstream = Upstream::start_http2();
    let folder = TempDir::new().expect("a temporary folder");
    let text = Gateway::public_config(upstream.address, "protocol = \"h2\"");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let before = gateway.program.peak_memory();
    let mut client = ManualClient::handshake_over(connect(gateway.addresses[1], 88, 1).await).await;
    client.send(b"GET /large/2000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let (start, mut received) = (Instant::now(), 0);
    while start.elapsed() < DURATION {
        received += client.read().await;
        client.discard_response().await;
        // The client under test is slow.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(received > 5_000, "{received}");
    let grown = gateway.program.peak_memory() - before;
    assert!(grown < 16 << 20, "the gateway needs {} KiB more for one response", grown >> 10);
}

/// TLS has a buffer above the socket. This client reads far above the minimum rate, and needs longer for that buffer
/// than a client may read nothing.
#[tokio::test]
async fn a_slow_reader_is_not_silent_while_tls_empties_its_buffer() {
    const LARGE: usize = 100_000;
    const RATE: f64 = 20_000.0;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nwrite = \"2s\"");
    let mut client = ManualClient::handshake_over(connect(gateway.tls_address(), 536, 4096).await).await;
    client.send(format!("GET /large/{LARGE} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
    let (start, mut received) = (Instant::now(), 0);
    while received < LARGE {
        while (received as f64) < RATE * start.elapsed().as_secs_f64() && received < LARGE {
            received += client.read().await;
            client.discard_response().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(gateway.metric("bearward_slow_clients_disconnected_total").await, 0.0);
}

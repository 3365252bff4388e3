//! Clients that read slowly over TLS: what waits for them, and for how long.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::manual_client::ManualClient;
use crate::support::frames::{self, DATA, END_HEADERS, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// Connects with small buffers on both sides: if the client accepts only small segments, the kernel gives the gateway a
/// small send buffer.
async fn connect(address: SocketAddr, segment: u32, receive_buffer: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    SockRef::from(&socket).set_tcp_mss(segment).expect("set");
    socket.set_recv_buffer_size(receive_buffer).expect("set");
    socket.connect(address).await.expect("the gateway listens")
}

/// Responds with 8 MiB, as fast as the gateway makes room for them. Returns how much it could send before the gateway
/// made no more room.
async fn respond_as_room_allows(backend: &mut Wire) -> usize {
    const LEN: usize = 8 << 20;
    let _preface = backend.read_bytes(frames::PREFACE.len()).await;
    let _request = frames::next(backend, &[HEADERS]).await;
    // Together, so that the response fills the first write behind the handshake.
    let mut next = [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, &[frames::OK])].concat();
    let (mut sent, mut room, mut quiet) = (0, 65_535, 0);
    while sent < LEN && quiet < 100 {
        while room > 0 {
            let len = room.min(16_384);
            next.extend(frame(DATA, 0, 1, &vec![b'x'; len]));
            (sent, room) = (sent + len, room - len);
        }
        // The response to a PING says that the gateway has read all of it.
        next.extend(frame(PING, 0, 0, &[0; 8]));
        backend.send(std::mem::take(&mut next)).await;
        quiet += 1;
        loop {
            let received = frames::next(backend, &[PING, WINDOW_UPDATE]).await;
            if received.kind == PING {
                break;
            }
            if received.stream == 1 {
                room += u32::from_be_bytes(received.payload.try_into().expect("four bytes")) as usize;
                quiet = 0;
            }
        }
    }
    sent
}

/// The first write behind the handshake does not fit into the socket. The rest of the response must wait in the
/// backend, not in the gateway.
#[tokio::test]
async fn a_silent_reader_after_a_handshake_holds_the_backend() {
    let (report, mut reported) = mpsc::unbounded_channel();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let report = report.clone();
        async move {
            report.send(respond_as_room_allows(&mut wire).await).expect("the test waits");
            wire.read_to_end().await;
        }
    });
    let gateway = Gateway::public_single_worker(backend.address, "protocol = \"h2\"");
    // The end of the handshake and the request fit into one segment, so that they arrive together.
    let mut client = ManualClient::handshake_over(connect(gateway.tls_address(), 256, 1).await).await;
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let sent = tokio::time::timeout(TIMEOUT, reported.recv()).await.expect("in time").expect("one response");
    assert!(sent < 1 << 20, "the gateway took {sent} bytes for a client that reads nothing");
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

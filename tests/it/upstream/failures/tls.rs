//! Backends that fail the TLS handshake.

use std::time::{Duration, Instant};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use super::points::End;
use super::{log_entry, logged};
use crate::support::{Gateway, ScriptedBackend, Upstream};

/// How long the gateway waits for a connection, including TLS.
const CONNECT: Duration = Duration::from_secs(1);

/// The beginning of a record with a ServerHello.
const HALF_A_HELLO: &[u8] = &[22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3];
/// handshake_failure, as a fatal alert.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

#[tokio::test]
async fn a_failed_handshake_is_reported_in_time_and_retried() {
    let upstream = Upstream::start();
    // A second gateway serves as the TLS backend.
    let proper = Gateway::public(upstream.address, "");
    let token_forwarding = proper.tls_address();
    for (bytes, end, expected) in [
        (&b""[..], End::Stall, (504, "upstream_connect_timeout")),
        (HALF_A_HELLO, End::Stall, (504, "upstream_connect_timeout")),
        (b"", End::Reset, (502, "upstream_connect")),
        (b"", End::Close, (502, "upstream_connect")),
        (b"", End::HalfClose, (502, "upstream_connect")),
        (HALF_A_HELLO, End::Reset, (502, "upstream_connect")),
        (HALF_A_HELLO, End::Close, (502, "upstream_connect")),
        (ALERT, End::Stall, (502, "upstream_connect")),
        (b"SSH-2.0-OpenSSH_9.2\r\n", End::Stall, (502, "upstream_connect")),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", End::Stall, (502, "upstream_connect")),
    ] {
        for protocol in ["http1", "h2"] {
            let backend = ScriptedBackend::start(move |mut wire, number| async move {
                if number > 0 {
                    let mut proper = TcpStream::connect(token_forwarding).await.expect("it listens");
                    // The handshake fails in any way.
                    let _ = copy_bidirectional(&mut wire.stream, &mut proper).await;
                    return;
                }
                // The header of the record with the ClientHello.
                wire.read_bytes(5).await;
                wire.send(bytes).await;
                end.of(wire).await;
            });
            let context = format!("{protocol}: {end:?} after {:?}", bytes.escape_ascii().to_string());
            let ca = proper.certificate();
            let more = format!(
                "protocol = \"{protocol}\"\nconnect_timeout = \"{}s\"\nca_file = \"{}\"",
                CONNECT.as_secs(),
                ca.display()
            );
            let text = Gateway::public_config(backend.address, &more).replace("http://127.0.0.1", "https://localhost");
            let gateway = Gateway::from_text(text);
            let began = Instant::now();
            let answer = gateway.client().get("/").await;
            let (took, (status, reason)) = (began.elapsed(), expected);
            let error = if status == 504 { "gateway_timeout" } else { "bad_gateway" };
            assert_eq!((u64::from(answer.status.as_u16()), &*answer.error()), (status, error), "{context}");
            let timed_out = status == 504;
            assert!(took < 5 * CONNECT && timed_out == (took >= CONNECT), "{context}: {took:?}");
            assert_eq!(logged(&gateway).await, log_entry(status, reason, true), "{context}");
            assert_eq!(gateway.client().get("/").await.text(), "hello", "{context}");
        }
    }
}

//! The handshake of a connection: TLS, and whether the client speaks HTTP/1 or HTTP/2.

use std::io;
use std::time::Duration;

use rustls::ProtocolVersion;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::handshake_io::HandshakeBuffer;
use crate::protocols::tls::ServerTls;

/// The beginning of the connection preface of HTTP/2 (RFC 9113 section 3.4). No HTTP/1 method is `PRI`.
const PREFACE_START: &[u8] = b"PRI";

/// How long a client may take to read why its handshake failed.
const ALERT_TIME: Duration = Duration::from_secs(1);

/// A handshake that failed.
pub(super) struct Failure {
    pub(super) error: io::Error,
    /// `None` if the client was silent for too long: then there is no alert to send.
    socket: Option<HandshakeBuffer<TcpStream>>,
}

impl Failure {
    /// Tells the client what failed, and closes the connection.
    pub(super) async fn tell(self) -> io::Error {
        if let Some(socket) = self.socket {
            // This fails if the client is gone.
            let _ = tokio::time::timeout(ALERT_TIME, socket.end_failed()).await;
        }
        self.error
    }
}

/// Does the TLS handshake when the client has sent something and `turn` has come, which is no time of the client's. The
/// stream is boxed: each future that holds it would otherwise hold the TLS session, twice.
pub(super) async fn tls(
    stream: TcpStream,
    side: &ServerTls,
    turn: impl Future<Output = ()>,
    timeout: Duration,
) -> Result<Box<TlsStream<HandshakeBuffer<TcpStream>>>, Failure> {
    let begun = Instant::now();
    match tokio::time::timeout(timeout, stream.readable()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failure { error, socket: None }),
        Err(elapsed) => return Err(Failure { error: elapsed.into(), socket: None }),
    }
    let timeout = timeout.saturating_sub(begun.elapsed());
    turn.await;
    let handshake = TlsAcceptor::from(side.config.clone()).accept(HandshakeBuffer::new(stream)).into_fallible();
    let mut stream = match tokio::time::timeout(timeout, handshake).await {
        Ok(Ok(stream)) => Box::new(stream),
        Ok(Err((error, socket))) => return Err(Failure { error, socket: Some(socket) }),
        Err(elapsed) => return Err(Failure { error: elapsed.into(), socket: None }),
    };
    let (socket, session) = stream.get_mut();
    let has_request = session.process_new_packets().is_ok_and(|read| read.plaintext_bytes_to_read() > 0);
    socket.end_handshake(session.protocol_version() == Some(ProtocolVersion::TLSv1_3), has_request);
    Ok(stream)
}

/// Returns true if a cleartext client speaks HTTP/2 with prior knowledge. Looks at the first three bytes without taking
/// them.
pub(super) async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE_START.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = stream.peek(&mut start).await?;
        if seen == 0 || seen == start.len() || start[..seen] != PREFACE_START[..seen] {
            return Ok(start == PREFACE_START);
        }
        // A peek reports the same bytes again at once, so this has to sleep until the others arrive. That takes a
        // moment, unless the client holds them back on purpose: then the sleeps grow longer.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

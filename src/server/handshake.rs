//! The handshake of a connection: TLS, and whether the client speaks HTTP/1 or HTTP/2.

use std::io;
use std::time::Duration;

use rustls::ProtocolVersion;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::handshake_io::HandshakeBuffer;
use crate::protocols::coalescing_stream::CoalescingStream;
use crate::protocols::tls::{AcmeNames, BUFFER_SIZE, ServerTls, VALIDATION_PROTOCOL};

/// The beginning of the connection preface of HTTP/2 (RFC 9113 section 3.4). No HTTP/1 method is `PRI`.
const PREFACE_START: &[u8] = b"PRI";

/// How long a client may take to read why its handshake failed.
const ALERT_TIME: Duration = Duration::from_secs(1);

/// How long a connection that validates a name may take from its first message on. An authority has nothing to wait
/// for.
const VALIDATION_TIME: Duration = Duration::from_secs(5);

/// A connection after its handshake.
pub(super) enum Connected {
    Client(Box<ClientTls>),
    /// An ACME server has validated a name, and the connection is closed (RFC 8737 section 3).
    Validated,
}

pub(super) type ClientTls = TlsStream<HandshakeBuffer<CoalescingStream>>;

/// A handshake that failed.
pub(super) struct Failure {
    pub(super) error: io::Error,
    /// `None` if the client was silent for too long: then there is no alert to send.
    socket: Option<HandshakeBuffer<CoalescingStream>>,
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
) -> Result<Connected, Failure> {
    let begun = Instant::now();
    match tokio::time::timeout(timeout, stream.readable()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failure { error, socket: None }),
        Err(elapsed) => return Err(Failure { error: elapsed.into(), socket: None }),
    }
    let timeout = timeout.saturating_sub(begun.elapsed());
    turn.await;
    let stream = HandshakeBuffer::new(CoalescingStream::new(stream));
    let handshake = async {
        match &side.acme {
            None => plain(stream, side).await,
            Some(names) => Box::pin(unless_validation(stream, side, names)).await,
        }
    };
    let mut stream = match tokio::time::timeout(timeout, handshake).await {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return Ok(Connected::Validated),
        Ok(Err(failure)) => return Err(failure),
        Err(elapsed) => return Err(Failure { error: elapsed.into(), socket: None }),
    };
    let (socket, session) = stream.get_mut();
    session.set_buffer_limit(Some(BUFFER_SIZE));
    let has_request = session.process_new_packets().is_ok_and(|read| read.plaintext_bytes_to_read() > 0);
    socket.end_handshake(session.protocol_version() == Some(ProtocolVersion::TLSv1_3), has_request);
    Ok(Connected::Client(stream))
}

/// `None` never.
async fn plain(stream: HandshakeBuffer<CoalescingStream>, side: &ServerTls) -> Result<Option<Box<ClientTls>>, Failure> {
    let handshake = TlsAcceptor::from(side.config.clone()).accept(stream).into_fallible();
    let stream = handshake.await.map_err(|(error, socket)| Failure { error, socket: Some(socket) })?;
    Ok(Some(Box::new(stream)))
}

/// Reads the first message of the client. An ACME server that speaks nothing but `acme-tls/1`, and validates a name at
/// this moment, gets the certificate for that; the connection then ends without data. For all others this is an
/// ordinary handshake, which has no such protocol. `None`: a name was validated.
async fn unless_validation(
    stream: HandshakeBuffer<CoalescingStream>,
    side: &ServerTls,
    names: &AcmeNames,
) -> Result<Option<Box<ClientTls>>, Failure> {
    let mut hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
    let begun = match (&mut hello).await {
        Ok(begun) => begun,
        Err(error) => return Err(Failure { error, socket: hello.take_io() }),
    };
    let failed = |(error, socket)| Failure { error, socket: Some(socket) };
    let mut validation = None;
    if is_validation(begun.client_hello().alpn()) {
        let name = begun.client_hello().server_name().map(str::to_owned);
        validation = names.validation(name.as_deref()).await;
    }
    let Some(config) = validation else {
        let stream = begun.into_stream(side.config.clone()).into_fallible().await.map_err(failed)?;
        return Ok(Some(Box::new(stream)));
    };
    let ended = async {
        let mut stream = begun.into_stream(config).into_fallible().await.map_err(failed)?;
        // An authority may have closed the connection already.
        let _ = stream.shutdown().await;
        Ok(None)
    };
    let late = |elapsed: tokio::time::error::Elapsed| Failure { error: elapsed.into(), socket: None };
    tokio::time::timeout(VALIDATION_TIME, ended).await.map_err(late)?
}

fn is_validation<'a>(alpn: Option<impl Iterator<Item = &'a [u8]>>) -> bool {
    alpn.is_some_and(|mut protocols| protocols.next() == Some(VALIDATION_PROTOCOL) && protocols.next().is_none())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8737 section 4: a client that speaks anything else is no authority.
    #[test]
    fn a_validation_offers_its_protocol_alone() {
        let is_one = |offered: &[&[u8]]| is_validation(Some(offered.iter().copied()));
        assert!(is_one(&[VALIDATION_PROTOCOL]));
        let others: [&[&[u8]]; 5] = [
            &[],
            &[b"h2"],
            &[VALIDATION_PROTOCOL, b"h2"],
            &[b"h2", VALIDATION_PROTOCOL],
            &[VALIDATION_PROTOCOL, VALIDATION_PROTOCOL],
        ];
        for other in others {
            assert!(!is_one(other), "{other:?}");
        }
        assert!(!is_validation(None::<std::iter::Empty<&[u8]>>));
    }
}

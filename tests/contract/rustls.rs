//! rustls and tokio-rustls on the side of the gateway.

use std::io::{ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::join;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{AlertDescription, ClientConfig, Error, HandshakeKind, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pipe::{Call, Calls, pipe, pipe_of, soon};

/// A certificate that signs itself.
struct Identity(CertifiedKey<KeyPair>);

impl Identity {
    fn new() -> Identity {
        Identity(generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate"))
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.0.signing_key.serialize_der().into())
    }

    /// Trusts this certificate alone.
    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.cert.der().clone()).expect("a certificate");
        roots
    }

    /// The side of a server with this certificate. `clients`: the certificate that its clients need.
    fn server(&self, clients: Option<&Identity>) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots().into(), provider).build();
                builder.with_client_cert_verifier(verifier.expect("a root"))
            }
        };
        builder.with_single_cert(vec![self.0.cert.der().clone()], self.key()).expect("a key")
    }

    /// The side of a client that trusts this certificate. `own`: its own certificate.
    fn client(&self, own: &Identity) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_root_certificates(self.roots());
        builder.with_client_auth_cert(vec![own.0.cert.der().clone()], own.key()).expect("a key")
    }
}

/// Does the handshake of a client, and sends its first request right behind it.
async fn connect(config: &Arc<ClientConfig>, stream: DuplexStream, request: &[u8]) -> Result<TlsStream<DuplexStream>> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = TlsConnector::from(config.clone()).connect(name, stream).await?;
    client.write_all(request).await?;
    client.flush().await?;
    Ok(client)
}

/// The calls that did not have to wait.
fn without_waits(calls: &Calls) -> Vec<Call> {
    calls.take().into_iter().filter(|call| *call != Call::ReadNothing).collect()
}

/// Lets `src/server/handshake_io.rs` send tickets with a response, and `src/server/handshake.rs` see that a request has
/// come along with the last message.
#[tokio::test]
async fn a_handshake_ends_behind_its_ticket_with_the_request_that_came_along() {
    let identity = Identity::new();
    let mut config = identity.server(None);
    config.ticketer = aws_lc_rs::Ticketer::new().expect("random numbers");
    config.send_tls13_tickets = 1;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connector = Arc::new(identity.client(&identity));
    for request in [&b""[..], b"GET"] {
        let (stream, calls, client) = pipe();
        let (server, _client) = soon(join(acceptor.accept(stream), connect(&connector, client, request))).await;
        let mut server = server.expect("a handshake");
        let calls = without_waits(&calls);
        assert!(matches!(calls[..], [.., Call::Read(_), Call::Write(_), Call::Flush]), "{calls:?}");
        let state = server.get_mut().1.process_new_packets().expect("no fault");
        assert_eq!(state.plaintext_bytes_to_read(), request.len());
    }
}

/// Lets `src/server/handshake.rs` close the connection of a failed handshake: the alert waits in `HandshakeBuffer`.
#[tokio::test]
async fn a_handshake_that_fails_writes_its_alert_without_a_flush_and_gives_the_stream_back() {
    let identity = Identity::new();
    let mut config = identity.server(None);
    let mut other = identity.client(&identity);
    config.alpn_protocols = vec![b"h2".to_vec()];
    other.alpn_protocols = vec![b"other".to_vec()];
    let (stream, calls, client) = pipe();
    let accept = TlsAcceptor::from(Arc::new(config)).accept(stream).into_fallible();
    let other = Arc::new(other);
    let (failed, rejected) = soon(join(accept, connect(&other, client, b""))).await;
    let (error, _stream) = failed.expect_err("no common protocol");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(matches!(without_waits(&calls)[..], [Call::Read(_), Call::Write(_)]));
    let cause = rejected.expect_err("an alert").into_inner().and_then(|cause| cause.downcast::<Error>().ok());
    assert_eq!(cause.as_deref(), Some(&Error::AlertReceived(AlertDescription::NoApplicationProtocol)));
}

/// Writes until the stream accepts no more. Returns how many bytes it accepted.
fn fill(stream: &mut (impl AsyncWrite + Unpin)) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    let mut accepted = 0;
    while let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(&mut context, &[b'x'; 64 * 1024]) {
        accepted += written.expect("the client is there");
    }
    accepted
}

/// Sets what TLS holds back from a client that does not read, in `src/protocols/tls/record_size.rs`.
#[tokio::test]
async fn tls_accepts_its_limit_of_plaintext_in_records_that_are_five_bytes_smaller_than_their_maximum() {
    const RECORD: usize = 1_000;
    const HEADER: usize = 5;
    const OVERHEAD: usize = 17;
    let identity = Identity::new();
    let mut config = identity.server(None);
    config.max_fragment_size = Some(RECORD + HEADER);
    config.send_tls13_tickets = 0;
    let (stream, _, client) = pipe_of(64);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connector = Arc::new(identity.client(&identity));
    let (server, client) = soon(join(acceptor.accept(stream), connect(&connector, client, b""))).await;
    let mut server = server.expect("a handshake");
    let mut client = client.expect("a handshake").into_inner().0;
    server.get_mut().1.set_buffer_limit(Some(4 * RECORD));
    assert_eq!(fill(&mut server), 4 * RECORD);
    let reading = async {
        for _ in 0..4 {
            let mut header = [0; HEADER];
            client.read_exact(&mut header).await.expect("a record");
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            assert_eq!(length, RECORD + OVERHEAD);
            client.read_exact(&mut vec![0; length]).await.expect("all of it");
        }
    };
    let (flushed, ()) = soon(join(server.flush(), reading)).await;
    flushed.expect("the client is there");
}

/// Makes `src/protocols/tls/server.rs` forbid resumption to clients with certificates.
#[tokio::test]
async fn a_resumed_session_keeps_the_certificate_of_its_client_without_a_check() {
    let [identity, known, other] = [(); 3].map(|()| Identity::new());
    let mut trusting = identity.server(Some(&known));
    let mut strict = identity.server(Some(&other));
    trusting.ticketer = aws_lc_rs::Ticketer::new().expect("random numbers");
    strict.ticketer = trusting.ticketer.clone();
    let [trusting, strict] = [trusting, strict].map(|config| TlsAcceptor::from(Arc::new(config)));
    let connector = Arc::new(identity.client(&known));
    for (acceptor, expected) in [(&trusting, HandshakeKind::Full), (&strict, HandshakeKind::Resumed)] {
        let (stream, _, client) = pipe();
        let (server, client) = soon(join(acceptor.accept(stream), connect(&connector, client, b""))).await;
        let mut server = server.expect("a handshake");
        let session = server.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(expected));
        let certificates = session.peer_certificates().expect("a certificate");
        assert_eq!(certificates, [known.0.cert.der().clone()]);
        server.write_u8(1).await.expect("room");
        // The ticket comes before it.
        soon(client.expect("a handshake").read_u8()).await.expect("a byte");
    }
    let stranger = Arc::new(identity.client(&known));
    let (stream, _, client) = pipe();
    let (rejected, _client) = soon(join(strict.accept(stream), connect(&stranger, client, b""))).await;
    assert!(rejected.is_err());
}

//! TLS to the database: rustls under tokio-postgres.
//!
//! The verification is that of the `ClientConfig`: the certificate must be valid for the name of the host. The mode
//! `prefer` of PostgreSQL, which falls back to cleartext, does not exist here.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::{TlsConnector, client};

/// How connections are encrypted. From `protocols/tls`, which this floor cannot import.
#[derive(Clone)]
pub struct Tls {
    pub config: Arc<ClientConfig>,
    /// The `tls-server-end-point` value of a certificate in DER (RFC 5929 section 4), if it has one.
    pub end_point: fn(&[u8]) -> Option<Vec<u8>>,
}

/// `None`: without TLS.
#[derive(Clone)]
pub(super) struct Encryption(pub(super) Option<Tls>);

impl<S> MakeTlsConnect<S> for Encryption
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = TlsStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { tls: self.0.clone(), host: host.to_owned() })
    }
}

pub(super) struct Handshake {
    tls: Option<Tls>,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = TlsStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let tls = self.tls.ok_or_else(|| io::Error::other("this connection has no TLS settings"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(tls.config.clone()).connect(name, stream).await?;
            Ok(TlsStream { stream, end_point: tls.end_point })
        })
    }
}

pub(super) struct TlsStream<S> {
    stream: client::TlsStream<S>,
    end_point: fn(&[u8]) -> Option<Vec<u8>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for TlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let end_point = certificate.and_then(|certificate| (self.end_point)(certificate));
        end_point.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

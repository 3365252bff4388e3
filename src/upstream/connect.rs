//! Opening a connection to a server: name, TCP, TLS, HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::resolve::Addresses;
use super::{Failure, Protocol, ServerSettings, Settings};
use crate::body::Body;
use crate::{socket, tls};

/// What an HTTP/2 backend may send on one stream before the client has read it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// RFC 9113 section 6.9.1.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// How to reach one server.
pub(super) struct Dialer {
    pub(super) addresses: Arc<Addresses>,
    /// For what is told about it.
    name: String,
    timeout: Duration,
    /// Requests at once on an HTTP/2 connection.
    streams: usize,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// What is the same for all servers of an upstream: files are read once.
pub(super) fn client_config(settings: &Settings) -> Result<Option<Arc<ClientConfig>>, String> {
    if !settings.servers.iter().any(|server| server.tls) {
        return Ok(None);
    }
    let alpn: &[&[u8]] = match settings.protocol {
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
    };
    tls::client_config_as(settings.tls.client.as_ref(), settings.tls.ca_file.as_deref(), alpn).map(Some)
}

impl Dialer {
    pub(super) fn new(
        server: &ServerSettings,
        settings: &Settings,
        config: Option<&Arc<ClientConfig>>,
        addresses: Arc<Addresses>,
    ) -> Result<Self, String> {
        let tls = match config.filter(|_| server.tls) {
            None => None,
            Some(config) => {
                let name = settings.tls.name.as_ref().unwrap_or(&server.host).clone();
                let checked = ServerName::try_from(name.clone());
                Some((config.clone(), checked.map_err(|_| format!("{name:?} is not a name that TLS can check"))?))
            }
        };
        let name = server.authority();
        Ok(Dialer { addresses, name, timeout: settings.connect_timeout, streams: settings.connections, tls })
    }

    // Dialling is boxed, as the rare case: a request's future is as large as the largest step in it.

    /// An HTTP/1 connection: it carries one request at a time.
    pub(super) async fn dial_http1(&self) -> Result<(http1::SendRequest<Body>, SocketAddr), Failure> {
        self.in_time(Box::pin(async {
            let (connected, address) = self.connect().await?;
            let sender = match connected {
                Connected::Plain(stream) => speak_http1(stream).await?,
                Connected::Tls(stream) => speak_http1(*stream).await?,
            };
            Ok((sender, address))
        }))
        .await
    }

    /// An HTTP/2 connection: it carries many requests at once.
    pub(super) async fn dial_http2(&self) -> Result<(http2::SendRequest<Body>, SocketAddr), Failure> {
        self.in_time(Box::pin(async {
            let (connected, address) = self.connect().await?;
            let sender = match connected {
                Connected::Plain(stream) => self.speak_http2(stream).await?,
                Connected::Tls(stream) => self.speak_http2(*stream).await?,
            };
            Ok((sender, address))
        }))
        .await
    }

    async fn in_time<T>(&self, dialling: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, dialling).await {
            Ok(dialled) => dialled,
            Err(_) => {
                let (name, millis) = (&self.name, self.timeout.as_millis());
                Err(Failure::ConnectTimeout(format!("no connection to {name} within {millis}ms")))
            }
        }
    }

    async fn connect(&self) -> Result<(Connected, SocketAddr), Failure> {
        let fault = |error: std::io::Error| Failure::Connect(format!("connecting to {}: {error}", self.name));
        let (stream, address) = self.addresses.connect().await.map_err(fault)?;
        socket::tune(&stream);
        let Some((config, name)) = &self.tls else { return Ok((Connected::Plain(stream), address)) };
        let connector = TlsConnector::from(config.clone());
        let stream = connector.connect(name.clone(), stream).await.map_err(fault)?;
        Ok((Connected::Tls(Box::new(stream)), address))
    }

    async fn speak_http2<S>(&self, stream: S) -> Result<http2::SendRequest<Body>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let window = u64::from(STREAM_WINDOW).saturating_mul(self.streams as u64);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            // A backend that vanished without a word would otherwise hold every later request.
            .keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(STREAM_WINDOW)
            // Every stream's window fits in: clients that do not read hold up no other.
            .initial_connection_window_size(u32::try_from(window).unwrap_or(u32::MAX).min(LARGEST_WINDOW))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Failure::broken)?;
        tokio::spawn(async move { connection.await.ok() });
        Ok(sender)
    }
}

enum Connected {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

async fn speak_http1<S>(stream: S) -> Result<http1::SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::broken)?;
    // An error of the connection is the error of the request on it; there is nobody else to tell.
    tokio::spawn(async move { connection.with_upgrades().await.ok() });
    Ok(sender)
}

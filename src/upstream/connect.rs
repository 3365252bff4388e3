//! Opens connections to a server: DNS, TCP, PROXY protocol, TLS, HTTP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::{Failure, UpstreamError};
use super::io::BackendStream;
use super::resolve::Addresses;
use super::settings::{Protocol, ServerSettings, UpstreamSettings};
use crate::protocols::http::body::Body;
use crate::protocols::proxy_protocol::{self, Version};
use crate::protocols::socket;
use crate::protocols::tls::{self, BUFFER_SIZE, TlsError};

/// Maximum bytes that an HTTP/2 backend may send on one stream before the client has read them. It is close to the
/// default of RFC 9113 section 6.9.2. h2 uses about 400 bytes of memory for each frame, so small frames make a few MiB
/// of this.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Maximum size of a response head from an HTTP/2 backend, as HPACK counts it (RFC 9113 section 6.5.2). hyper's default
/// is 16 KiB, which a few long cookies or policies exceed.
const HEAD_SIZE: u32 = 256 * 1024;
/// Maximum bytes on all streams of a connection that clients have not read. All stream windows fit in, so clients that
/// do not read block no others. h2 takes too many small unread frames for an attack and closes the connection: about
/// 250 bytes for each frame count towards half of this window. The limit is then a million frames (400 MiB), more than
/// the gRPC streams of one client can hold.
const CONNECTION_WINDOW: u32 = 512 * 1024 * 1024;

/// Opens connections to one server.
pub(super) struct Connector {
    pub(super) addresses: Arc<Addresses>,
    /// For messages.
    name: String,
    protocol: Protocol,
    timeout: Duration,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    proxy_protocol: Option<Version>,
}

/// The TLS settings of all servers of an upstream, so that files are read once. `None` if no server uses TLS.
pub(super) fn client_config(settings: &UpstreamSettings) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    if !settings.servers.iter().any(|server| server.tls) {
        return Ok(None);
    }
    let alpn: &[&[u8]] = match settings.protocol {
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
    };
    tls::client_config_with(settings.tls.client.as_ref(), settings.tls.ca_file.as_deref(), alpn).map(Some)
}

impl Connector {
    pub(super) fn new(
        server: &ServerSettings,
        settings: &UpstreamSettings,
        config: Option<&Arc<ClientConfig>>,
        addresses: Arc<Addresses>,
    ) -> Result<Self, UpstreamError> {
        let tls = match config {
            Some(config) if server.tls => {
                let name = settings.tls.server_name.as_deref().unwrap_or(server.name());
                let parsed = ServerName::try_from(name.to_owned());
                Some((config.clone(), parsed.map_err(|_| UpstreamError::InvalidTlsName(name.to_owned()))?))
            }
            _ => None,
        };
        let name = server.authority();
        let timeout = settings.connect_timeout;
        let proxy_protocol = settings.proxy_protocol;
        Ok(Connector { addresses, name, protocol: settings.protocol, timeout, tls, proxy_protocol })
    }

    // Dialling is boxed because it is rare: a request's future is as large as its largest step.

    /// Opens an HTTP/1 connection. It carries one request at a time; with `proxy_protocol`, requests of this client
    /// only.
    pub(super) async fn connect_http1(
        &self,
        client: Option<IpAddr>,
    ) -> Result<(http1::SendRequest<Body>, SocketAddr), Failure> {
        self.with_timeout(Box::pin(async {
            let (connected, address) = self.connect(client).await?;
            let sender = match connected {
                Connected::Plain(stream) => handshake_http1(stream).await?,
                Connected::Tls(stream) => handshake_http1(*stream).await?,
            };
            Ok((sender, address))
        }))
        .await
    }

    /// Opens an HTTP/2 connection. It carries many requests at once.
    pub(super) async fn connect_http2(&self) -> Result<(http2::SendRequest<Body>, SocketAddr), Failure> {
        self.with_timeout(Box::pin(async {
            let (connected, address) = self.connect(None).await?;
            let sender = match connected {
                Connected::Plain(stream) => handshake_http2(stream).await?,
                Connected::Tls(stream) => handshake_http2(*stream).await?,
            };
            Ok((sender, address))
        }))
        .await
    }

    async fn with_timeout<T>(&self, dialling: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, dialling).await {
            Ok(dialled) => dialled,
            Err(_) => {
                let name = &self.name;
                let millis = self.timeout.as_millis();
                Err(Failure::ConnectTimeout(format!("connecting to {name}: timed out after {millis}ms")))
            }
        }
    }

    async fn connect(&self, client: Option<IpAddr>) -> Result<(Connected, SocketAddr), Failure> {
        let failure = |error: std::io::Error| Failure::Connect(format!("connecting to {}: {error}", self.name));
        let (mut stream, address) = self.addresses.connect().await.map_err(failure)?;
        socket::set_options(&stream);
        if self.protocol == Protocol::Http2 {
            socket::set_fast_keepalive(&stream);
        }
        if let Some(version) = self.proxy_protocol {
            // A health check has no client: the gateway names itself.
            let own = || stream.local_addr().map(|own| own.ip());
            let header = proxy_protocol::header(version, client.map_or_else(own, Ok).map_err(failure)?, address);
            stream.write_all(&header).await.map_err(failure)?;
        }
        let stream = BackendStream::new(stream);
        let Some((config, name)) = &self.tls else { return Ok((Connected::Plain(stream), address)) };
        let connector = TlsConnector::from(config.clone());
        let mut stream = connector.connect(name.clone(), stream).await.map_err(failure)?;
        stream.get_mut().1.set_buffer_limit(Some(BUFFER_SIZE));
        Ok((Connected::Tls(Box::new(stream)), address))
    }
}

enum Connected {
    Plain(BackendStream),
    Tls(Box<TlsStream<BackendStream>>),
}

async fn handshake_http1<S>(stream: S) -> Result<http1::SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::broken)?;
    // An error of the connection is reported as the error of the request on it.
    tokio::spawn(async move { connection.with_upgrades().await.ok() });
    Ok(sender)
}

async fn handshake_http2<S>(stream: S) -> Result<http2::SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // No PING: a gRPC server takes more than one in five idle minutes for an attack and closes the connection with
        // every call on it. See [`socket::set_fast_keepalive`].
        .max_header_list_size(HEAD_SIZE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Failure::broken)?;
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}

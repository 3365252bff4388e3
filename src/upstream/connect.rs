//! Opening a connection to a server: name, TCP, TLS, HTTP.

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

use super::io::BackendStream;
use super::resolve::Addresses;
use super::{Failure, Protocol, ServerSettings, Settings};
use crate::protocols::http::body::Body;
use crate::protocols::proxy_protocol::{self, Version};
use crate::protocols::{socket, tls};

/// What an HTTP/2 backend may send on one stream before the client has read it: about as much as RFC 9113 section 6.9.2 begins with.
/// In frames of a few bytes, each of which costs h2 some 400 beside its data, that is some MiB of memory.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Of an answer from an HTTP/2 backend, as HPACK counts (RFC 9113 section 6.5.2). hyper would take 16 KiB here, and 400 over
/// HTTP/1: a few long cookies or policies are more.
const HEAD_SIZE: u32 = 256 * 1024;
/// And on all streams of a connection. Every stream's window fits in, so that clients that do not read hold up no other. With half
/// of it h2 pays for small frames that nobody has read, some 250 for each, and over that ends the connection for everybody, as it
/// takes them for an attack: that is at a million frames, 400 MiB, and more than one client's streams of gRPC can hold.
const CONNECTION_WINDOW: u32 = 512 * 1024 * 1024;

/// How to reach one server.
pub(super) struct Dialer {
    pub(super) addresses: Arc<Addresses>,
    /// For what is told about it.
    name: String,
    protocol: Protocol,
    timeout: Duration,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    proxy_protocol: Option<Version>,
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
                let name = settings.tls.server_name.as_ref().unwrap_or(&server.host).clone();
                let checked = ServerName::try_from(name.clone());
                Some((config.clone(), checked.map_err(|_| format!("{name:?} is not a name that TLS can check"))?))
            }
        };
        let name = server.authority();
        let (timeout, proxy_protocol) = (settings.connect_timeout, settings.proxy_protocol);
        Ok(Dialer { addresses, name, protocol: settings.protocol, timeout, tls, proxy_protocol })
    }

    // Dialling is boxed, as the rare case: a request's future is as large as the largest step in it.

    /// An HTTP/1 connection: it carries one request at a time; with `proxy_protocol`, of this client alone.
    pub(super) async fn dial_http1(
        &self,
        client: Option<IpAddr>,
    ) -> Result<(http1::SendRequest<Body>, SocketAddr), Failure> {
        self.in_time(Box::pin(async {
            let (connected, address) = self.connect(client).await?;
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
            let (connected, address) = self.connect(None).await?;
            let sender = match connected {
                Connected::Plain(stream) => speak_http2(stream).await?,
                Connected::Tls(stream) => speak_http2(*stream).await?,
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

    async fn connect(&self, client: Option<IpAddr>) -> Result<(Connected, SocketAddr), Failure> {
        let fault = |error: std::io::Error| Failure::Connect(format!("connecting to {}: {error}", self.name));
        let (mut stream, address) = self.addresses.connect().await.map_err(fault)?;
        socket::tune(&stream);
        if self.protocol == Protocol::Http2 {
            socket::watch_closely(&stream);
        }
        if let Some(version) = self.proxy_protocol {
            // Without a client, the gateway asks for itself: how the server is.
            let own = || stream.local_addr().map(|own| own.ip());
            let header = proxy_protocol::write(version, client.map_or_else(own, Ok).map_err(fault)?, address);
            stream.write_all(&header).await.map_err(fault)?;
        }
        let stream = BackendStream::new(stream);
        let Some((config, name)) = &self.tls else { return Ok((Connected::Plain(stream), address)) };
        let connector = TlsConnector::from(config.clone());
        let stream = connector.connect(name.clone(), stream).await.map_err(fault)?;
        Ok((Connected::Tls(Box::new(stream)), address))
    }
}

enum Connected {
    Plain(BackendStream),
    Tls(Box<TlsStream<BackendStream>>),
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

async fn speak_http2<S>(stream: S) -> Result<http2::SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // No PING: to a gRPC server, more than one in five minutes of silence is an attack, and it ends the connection with
        // every call on it. See [`socket::watch_closely`].
        .max_header_list_size(HEAD_SIZE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Failure::broken)?;
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}

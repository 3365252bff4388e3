//! A client for single requests: key sets, OAuth endpoints, audit webhooks and the admin API.
//!
//! Each request has a connection of its own, which closes with the response. The time and the size of the response are
//! limited, because the server can be slow, broken or hostile. Redirects are not followed: the operator chooses the
//! server, and a response must not choose another one.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::protocols::http::content_coding;
use crate::protocols::reach::Reach;
use crate::protocols::tls::{self, CertificateFiles};
use crate::protocols::url::SecureUrl;

/// The `User-Agent` of requests to other servers.
pub const USER_AGENT: &str = concat!("bearward/", env!("CARGO_PKG_VERSION"));

/// Maximum size of a response header.
pub(crate) const HEADER_SIZE: usize = 64 * 1024;

pub struct Limits {
    /// Maximum time for the whole exchange.
    pub time: Duration,
    /// Maximum size of the response body in bytes, before and after it is decoded.
    pub body_size: usize,
    /// Only addresses that reach at least as far are connected to.
    pub reach: Reach,
    /// Returns true if the body is read. The body of any other response is dropped, and the response has an empty one.
    pub reads_body: fn(&Parts) -> bool,
}

/// How the server proves who it is.
struct Tls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot make the request")]
    Request(#[source] http::Error),
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// The host has only addresses that are not allowed, for example this one.
    #[error("the address {0} is on this machine or in a private network")]
    Unreachable(IpAddr),
    /// The CA file or the name of the server cannot be used for TLS.
    #[error("cannot use TLS")]
    TlsSettings(#[source] Box<dyn Error + Send + Sync>),
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    #[error("no valid HTTP response")]
    Http(#[source] hyper::Error),
    #[error("cannot read the response body")]
    Body(#[source] Box<dyn Error + Send + Sync>),
    #[error("the response body is larger than {0} bytes")]
    BodyTooLarge(usize),
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
}

/// Sends a request to `url` on a new connection. For `https://`, the certificate of the server must come from a CA in
/// `ca_file`, or from one of the system's if that is `None`. The file is read on each call: a renewed CA is trusted
/// without a restart. The response has the `SocketAddr` of the server as an extension.
pub async fn send_to(
    url: &SecureUrl,
    ca_file: Option<&Path>,
    request: Request<Full<Bytes>>,
    limits: &Limits,
) -> Result<Response<Bytes>, ClientError> {
    let tls = if url.tls { Some(tls_config(None, ca_file)?) } else { None };
    send_with(url, tls, request, limits).await
}

/// The protocol of [`send_with`]. `client`: the certificate for servers that request one.
pub fn tls_config(client: Option<&CertificateFiles>, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, ClientError> {
    let config = tls::client_config_with(client, ca_file, &[b"http/1.1"]);
    config.map_err(|error| ClientError::TlsSettings(error.into()))
}

/// As [`send_to`], with a TLS configuration that several calls share. It must not be `None` for `https://`.
pub async fn send_with(
    url: &SecureUrl,
    tls: Option<Arc<ClientConfig>>,
    request: Request<Full<Bytes>>,
    limits: &Limits,
) -> Result<Response<Bytes>, ClientError> {
    let exchange = async {
        let tls = if url.tls { Some(Tls::new(&url.host, tls)?) } else { None };
        let stream = connect(&*addresses(url, limits.reach).await?).await?;
        let peer = stream.peer_addr().map_err(ClientError::Connect)?;
        let mut response = send(stream, tls, request, limits).await?;
        response.extensions_mut().insert(peer);
        Ok(response)
    };
    within(limits, exchange).await
}

/// The addresses of the host that are allowed. Checked after the name is resolved: a name can lead anywhere.
async fn addresses(url: &SecureUrl, reach: Reach) -> Result<Vec<SocketAddr>, ClientError> {
    let found = lookup_host((url.host.as_str(), url.port)).await.map_err(ClientError::Connect)?;
    let (allowed, rejected): (Vec<_>, Vec<_>) = found.partition(|address| Reach::of(address.ip()) >= reach);
    match (allowed.is_empty(), rejected.first()) {
        (true, Some(rejected)) => Err(ClientError::Unreachable(rejected.ip())),
        _ => Ok(allowed),
    }
}

async fn connect(address: impl ToSocketAddrs) -> Result<TcpStream, ClientError> {
    TcpStream::connect(address).await.map_err(ClientError::Connect)
}

/// Sends a request on a Unix socket that is connected already.
pub async fn send_on(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
    limits: &Limits,
) -> Result<Response<Bytes>, ClientError> {
    within(limits, exchange(stream, request, limits)).await
}

impl Tls {
    fn new(host: &str, config: Option<Arc<ClientConfig>>) -> Result<Self, ClientError> {
        let config = config.ok_or_else(|| ClientError::TlsSettings("there is no TLS configuration".into()))?;
        let server_name = ServerName::try_from(host.to_owned());
        let server_name = server_name.map_err(|error| ClientError::TlsSettings(error.into()))?;
        Ok(Tls { config, server_name })
    }
}

async fn within(
    limits: &Limits,
    exchange: impl Future<Output = Result<Response<Bytes>, ClientError>>,
) -> Result<Response<Bytes>, ClientError> {
    // Boxed: the TLS handshake makes this future a large one.
    let response = tokio::time::timeout(limits.time, Box::pin(exchange)).await;
    let response = response.unwrap_or(Err(ClientError::Timeout(limits.time)))?;
    decode(response, limits.body_size)
}

async fn send(
    stream: TcpStream,
    tls: Option<Tls>,
    request: Request<Full<Bytes>>,
    limits: &Limits,
) -> Result<Response<Bytes>, ClientError> {
    let Some(Tls { config, server_name }) = tls else { return exchange(stream, request, limits).await };
    let stream = TlsConnector::from(config).connect(server_name, stream).await.map_err(ClientError::Handshake)?;
    exchange(stream, request, limits).await
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>, limits: &Limits) -> Result<Response<Bytes>, ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::Builder::new().max_buf_size(HEADER_SIZE).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(ClientError::Http)?;
    let response = async {
        let response = sender.send_request(request).await.map_err(ClientError::Http)?;
        read(response, limits).await
    };
    // The connection is driven here and not by a task of its own: it closes with the response, or at the time limit.
    let mut response = pin!(response);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        response = &mut response => response,
        _ = &mut connection => response.await,
    }
}

async fn read(response: Response<Incoming>, limits: &Limits) -> Result<Response<Bytes>, ClientError> {
    let (head, body) = response.into_parts();
    if !(limits.reads_body)(&head) {
        return Ok(Response::from_parts(head, Bytes::new()));
    }
    let too_large = || ClientError::BodyTooLarge(limits.body_size);
    if body.size_hint().lower() > limits.body_size as u64 {
        return Err(too_large());
    }
    match Limited::new(body, limits.body_size).collect().await {
        Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ClientError::Body(error)),
    }
}

/// Decodes a body in gzip: a server may ignore `Accept-Encoding`.
fn decode(mut response: Response<Bytes>, max_size: usize) -> Result<Response<Bytes>, ClientError> {
    if !content_coding::is_gzip(response.headers(), response.body()) {
        return Ok(response);
    }
    let decoded = content_coding::gunzip(response.body(), max_size);
    let decoded = decoded.map_err(|error| ClientError::Body(error.into()))?;
    *response.body_mut() = decoded.ok_or(ClientError::BodyTooLarge(max_size))?;
    response.headers_mut().remove(header::CONTENT_ENCODING);
    Ok(response)
}

//! The sockets of the admin listener: accept, check the client, TLS handshake, HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;

use super::connections::{AdminConnections, Slot};
use super::router::{self, Peer};
use super::settings::READ_TIMEOUT;
use super::state::Admin;
use crate::protocols::local_socket;
use crate::protocols::tls::ServerTls;

/// How long to wait after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections until the task is dropped. A connection over the limit is closed at once.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ArcSwap<ServerTls>>>,
    connections: Arc<AdminConnections>,
    admin: Arc<Admin>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let Some(slot) = connections.remote(client.ip()) else { continue };
                let tls = tls.as_ref().map(|tls| tls.load_full());
                tokio::spawn(serve_connection(stream, client.ip(), tls, slot, admin.clone()));
            }
            Err(error) => wait_after(error).await,
        }
    }
}

/// As [`serve`], for processes of the gateway's own user and of root, which need no token.
pub async fn serve_local(listener: UnixListener, connections: Arc<AdminConnections>, admin: Arc<Admin>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match local_socket::check_client(&stream) {
                Ok(()) => {
                    let Some(slot) = connections.local() else { continue };
                    tokio::spawn(serve_http(stream, Peer::Local, slot, admin.clone()));
                }
                Err(error) => tracing::warn!(%error, "closed a connection to the admin socket"),
            },
            Err(error) => wait_after(error).await,
        }
    }
}

async fn wait_after(error: io::Error) {
    tracing::warn!(%error, "cannot accept an admin connection");
    tokio::time::sleep(ACCEPT_DELAY).await;
}

async fn serve_connection(
    stream: TcpStream,
    client: IpAddr,
    tls: Option<Arc<ServerTls>>,
    slot: Slot,
    admin: Arc<Admin>,
) {
    let peer = Peer::Remote { address: client.to_canonical(), tls: tls.clone() };
    let Some(side) = tls else { return serve_http(stream, peer, slot, admin).await };
    let handshake = TlsAcceptor::from(without_http2(&side)).accept(stream);
    if let Ok(Ok(stream)) = tokio::time::timeout(READ_TIMEOUT, handshake).await {
        serve_http(stream, peer, slot, admin).await;
    }
}

/// The listener speaks HTTP/1.1 only, so a client must not select HTTP/2 in the handshake.
fn without_http2(side: &ServerTls) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(&side.config);
    config.alpn_protocols.retain(|protocol| protocol != b"h2");
    Arc::new(config)
}

async fn serve_http<S>(stream: S, peer: Peer, _slot: Slot, admin: Arc<Admin>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (admin, peer) = (admin.clone(), peer.clone());
        async move { Ok::<_, Infallible>(router::handle(&admin, request, &peer).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    // An error here is one of the connection, which the client sees itself.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

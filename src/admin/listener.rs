//! The admin listener: accept, TLS handshake, HTTP/1.1.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::router;
use super::settings::READ_TIMEOUT;
use super::state::Admin;
use crate::protocols::tls::ServerTls;

/// How long to wait after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections until the task is dropped.
pub async fn serve(listener: TcpListener, tls: Option<Arc<ArcSwap<ServerTls>>>, admin: Arc<Admin>) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let tls = tls.as_ref().map(|tls| tls.load_full());
                tokio::spawn(serve_connection(stream, client.ip(), tls, admin.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                tokio::time::sleep(ACCEPT_DELAY).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, client: IpAddr, tls: Option<Arc<ServerTls>>, admin: Arc<Admin>) {
    let Some(side) = tls else { return serve_http(stream, client, admin).await };
    let handshake = TlsAcceptor::from(side.config.clone()).accept(stream);
    if let Ok(Ok(stream)) = tokio::time::timeout(READ_TIMEOUT, handshake).await {
        serve_http(stream, client, admin).await;
    }
}

async fn serve_http<S>(stream: S, client: IpAddr, admin: Arc<Admin>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(router::handle(&admin, request, client).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    // An error here is one of the connection, which the client sees itself.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

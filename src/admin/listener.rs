//! The sockets of the admin listener: accept, check the client, TLS handshake, HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connections::{AdminConnections, Slot};
use super::router::{self, Peer};
use super::settings::{READ_TIMEOUT, WRITE_TIMEOUT};
use super::slow_readers::TimedWrites;
use super::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::local_socket;
use crate::protocols::tls::{ServerTls, plain_http};

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
                // The new connection is served before the next ones can replace it.
                tokio::task::yield_now().await;
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
                    tokio::spawn(serve_http(stream, Peer::Local, Arc::new(slot), admin.clone()));
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
    let slot = Arc::new(slot);
    let serving = async {
        let Some(side) = tls else { return serve_http(stream, peer, slot.clone(), admin).await };
        if let Ok(Ok(Some(stream))) = tokio::time::timeout(READ_TIMEOUT, handshake(stream, &side)).await {
            serve_http(stream, peer, slot.clone(), admin).await;
        }
    };
    tokio::select! {
        biased;
        () = serving => {}
        () = slot.must_close() => {}
    }
}

/// `None` for a client that does not use TLS. It gets a response.
async fn handshake(mut stream: TcpStream, side: &ServerTls) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if plain_http::begins_request(first[0]) {
        plain_http::reject(&mut stream).await?;
        return Ok(None);
    }
    // The listener speaks HTTP/1.1 only, so a client must not select HTTP/2 in the handshake.
    let mut config = ServerConfig::clone(&side.config);
    config.alpn_protocols.retain(|protocol| protocol != b"h2");
    TlsAcceptor::from(Arc::new(config)).accept(stream).await.map(Some)
}

async fn serve_http<S>(stream: S, peer: Peer, slot: Arc<Slot>, admin: Arc<Admin>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let admin = admin.clone();
        let peer = peer.clone();
        let slot = slot.clone();
        async move {
            let _call = slot.begin_call();
            Ok::<_, Infallible>(router::handle(&admin, request, &peer).await)
        }
    });
    serve_service(stream, service, WRITE_TIMEOUT).await;
}

/// Within the time limits for the request header and for the response.
async fn serve_service<S, H>(stream: S, service: H, write_timeout: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    let stream = TokioIo::new(TimedWrites::new(stream, write_timeout));
    // An error here is one of the connection, which the client sees itself.
    let _ = builder.serve_connection(stream, service).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::{Instant, sleep};

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const SIZE: usize = 100_000;

    /// A client that has sent a request. Its socket holds little of the response.
    async fn connected(write_timeout: Duration) -> (DuplexStream, impl Future<Output = ()>) {
        let (mut client, server) = tokio::io::duplex(1000);
        client.write_all(REQUEST).await.expect("sent");
        let service = service_fn(|_| async { Ok(Response::new(Body::full(vec![b'x'; SIZE]))) });
        (client, serve_service(server, service, write_timeout))
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_disconnected() {
        let limit = Duration::from_millis(300);
        let (mut client, served) = connected(limit).await;
        let started = Instant::now();
        let serving = tokio::spawn(served);
        // A little at a time is not enough.
        while !serving.is_finished() {
            sleep(Duration::from_millis(20)).await;
            let _ = client.read_u8().await;
            assert!(started.elapsed() < Duration::from_secs(10), "still served");
        }
        assert!(started.elapsed() >= limit);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_stream_is_disconnected() {
        // More than any pause of a busy machine: the client must read within it.
        let limit = Duration::from_secs(1);
        let (mut client, server) = tokio::io::duplex(1000);
        client.write_all(REQUEST).await.expect("sent");
        let (sender, pieces) = tokio::sync::mpsc::channel(1);
        let pieces = parking_lot::Mutex::new(Some(pieces));
        let service = service_fn(move |_| {
            let pieces = pieces.lock().take();
            let body = pieces.map(Body::of_pieces).unwrap_or_default();
            async move { Ok(Response::new(body)) }
        });
        let serving = tokio::spawn(serve_service(server, service, limit));
        // While it reads, it may take its time.
        let started = Instant::now();
        let mut sent = 0;
        while started.elapsed() < 2 * limit || sent <= 1000 {
            sender.send(vec![b'x'; 100].into()).await.expect("connected");
            let mut read = [0; 400];
            sent += client.read(&mut read).await.expect("connected");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(!serving.is_finished());
        let stalled = Instant::now();
        while sender.send(vec![b'x'; 100].into()).await.is_ok() {
            assert!(stalled.elapsed() < Duration::from_secs(10), "still served");
            sleep(Duration::from_millis(5)).await;
        }
        serving.await.expect("no panic");
    }

    #[tokio::test]
    async fn each_response_has_the_whole_time() {
        let (mut client, served) = connected(Duration::from_secs(2)).await;
        let serving = tokio::spawn(served);
        for _ in 0..3 {
            sleep(Duration::from_millis(800)).await;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.expect("the head"));
            }
            client.read_exact(&mut vec![0; SIZE]).await.expect("the body");
            assert!(!serving.is_finished());
            client.write_all(REQUEST).await.expect("sent");
        }
    }
}

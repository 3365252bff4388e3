//! A client connection for many requests, with bodies that a test sends and reads in pieces.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::client::tls_connect;
use super::wire::TIMEOUT;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

pub struct HttpConnection {
    sender: Sender,
    connection: JoinHandle<()>,
    /// A second handle of the socket, to close it without hyper.
    socket: std::net::TcpStream,
}

#[derive(Clone)]
pub enum Sender {
    Http1(Arc<Mutex<http1::SendRequest<Body>>>),
    /// The sender and the scheme.
    Http2(http2::SendRequest<Body>, &'static str),
}

fn open(address: SocketAddr) -> (TcpStream, std::net::TcpStream) {
    let socket = std::net::TcpStream::connect(address).expect("the gateway listens");
    socket.set_nonblocking(true).expect("nonblocking");
    socket.set_nodelay(true).expect("a socket");
    let stream = TcpStream::from_std(socket.try_clone().expect("a second handle"));
    (stream.expect("a stream"), socket)
}

impl HttpConnection {
    pub async fn http1(address: SocketAddr) -> HttpConnection {
        Self::of(Version::HTTP_11, address).await
    }

    /// HTTP/2 by prior knowledge.
    pub async fn http2(address: SocketAddr) -> HttpConnection {
        Self::of(Version::HTTP_2, address).await
    }

    pub async fn of(version: Version, address: SocketAddr) -> HttpConnection {
        let (stream, socket) = open(address);
        Self::on(stream, "http", version, socket).await
    }

    /// Over TLS. Trusts one certificate.
    pub async fn over_tls(version: Version, address: SocketAddr, trusted: CertificateDer<'static>) -> HttpConnection {
        let (stream, socket) = open(address);
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        let stream = tls_connect(stream, trusted, alpn).await.expect("a handshake");
        Self::on(stream, "https", version, socket).await
    }

    async fn on<S>(stream: S, scheme: &'static str, version: Version, socket: std::net::TcpStream) -> HttpConnection
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        if version == Version::HTTP_2 {
            let handshake =
                http2::Builder::new(TokioExecutor::new()).max_header_list_size(1 << 20).handshake(stream).await;
            let (sender, connection) = handshake.expect("a connection");
            let connection = tokio::spawn(async move { drop(connection.await) });
            return HttpConnection { sender: Sender::Http2(sender, scheme), connection, socket };
        }
        let handshake = http1::Builder::new().max_headers(200).handshake(stream).await;
        let (sender, connection) = handshake.expect("a connection");
        let connection = tokio::spawn(async move { drop(connection.await) });
        HttpConnection { sender: Sender::Http1(Arc::new(Mutex::new(sender))), connection, socket }
    }

    /// Sends a request with a path and headers. Adds the scheme and the authority, or the Host header.
    pub async fn send(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.try_send(request).await.expect("a response")
    }

    pub async fn try_send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        let sending = self.sender.clone().send(request);
        tokio::time::timeout(TIMEOUT, sending).await.expect("a response in time")
    }

    /// As [`HttpConnection::send`], without a timeout.
    pub async fn send_without_timeout(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.sender.clone().send(request).await.expect("a response")
    }

    /// A sender for concurrent requests.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Closes the connection, also with requests in flight.
    pub fn abort(self) {
        self.socket.shutdown(std::net::Shutdown::Both).expect("it is open");
    }

    /// Asserts that the gateway closes the connection. The sender is still open, so the client does not close it.
    pub async fn assert_closed(self) {
        tokio::time::timeout(TIMEOUT, self.connection)
            .await
            .expect("the gateway closes the connection")
            .expect("no panic");
    }

    /// Returns true if the gateway has closed the connection.
    pub fn is_finished(&self) -> bool {
        self.connection.is_finished()
    }
}

impl Sender {
    pub async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Sender::Http1(sender) => {
                if !request.headers().contains_key("host") {
                    request.headers_mut().insert("host", http::HeaderValue::from_static("gateway.test"));
                }
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(mut sender, scheme) => {
                let uri = format!("{scheme}://gateway.test{}", request.uri());
                *request.uri_mut() = uri.parse().expect("a URI");
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

pub fn empty() -> Body {
    Empty::new().boxed_unsync()
}

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A body that a test sends in pieces. It ends when the sender is dropped.
pub fn streamed() -> (BodySender, Body) {
    let (pieces, mut received) = mpsc::channel(1);
    let frames = futures_util::stream::poll_fn(move |context| received.poll_recv(context));
    (BodySender(pieces), StreamBody::new(frames).boxed_unsync())
}

pub struct BodySender(mpsc::Sender<Result<Frame<Bytes>, Infallible>>);

impl BodySender {
    pub async fn send(&self, bytes: impl Into<Bytes>) {
        self.0.send(Ok(Frame::data(bytes.into()))).await.expect("the body is read");
    }

    /// Returns false if the body is not read any more.
    pub async fn try_send(&self, bytes: impl Into<Bytes>) -> bool {
        self.0.send(Ok(Frame::data(bytes.into()))).await.is_ok()
    }

    /// Ends the body with one trailer.
    pub async fn end_with(self, name: &'static str, value: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, http::HeaderValue::from_static(value));
        self.0.send(Ok(Frame::trailers(trailers))).await.expect("the body is read");
    }
}

/// The next chunk of a response's body, or `None` at its end.
pub async fn next_chunk(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = tokio::time::timeout(TIMEOUT, body.frame()).await.expect("a chunk of the body in time");
        let chunk = frame?.expect("the body goes on").into_data().expect("data");
        // HTTP/2 may end a body with an empty frame.
        if !chunk.is_empty() {
            return Some(chunk);
        }
    }
}

pub async fn text(body: Incoming) -> String {
    text_and_trailers(body).await.0
}

pub async fn text_and_trailers(body: Incoming) -> (String, Option<HeaderMap>) {
    let collected = tokio::time::timeout(TIMEOUT, body.collect()).await.expect("the whole body in time");
    let collected = collected.expect("a whole body");
    let trailers = collected.trailers().cloned();
    (String::from_utf8_lossy(&collected.to_bytes()).into_owned(), trailers)
}

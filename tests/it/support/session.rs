//! One connection, and many requests on it, with bodies that are sent and read piece by piece.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
use super::wire::PATIENCE;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

pub struct Session {
    sender: Sender,
    connection: JoinHandle<()>,
    /// The same socket once more, to end it whatever hyper would still like to do.
    socket: std::net::TcpStream,
}

#[derive(Clone)]
pub enum Sender {
    Http1(Arc<Mutex<http1::SendRequest<Body>>>),
    /// And the scheme.
    Http2(http2::SendRequest<Body>, &'static str),
}

fn open(address: SocketAddr) -> (TcpStream, std::net::TcpStream) {
    let socket = std::net::TcpStream::connect(address).expect("the gateway listens");
    socket.set_nonblocking(true).expect("nonblocking");
    let stream = TcpStream::from_std(socket.try_clone().expect("a second handle"));
    (stream.expect("a stream"), socket)
}

impl Session {
    pub async fn http1(address: SocketAddr) -> Session {
        Self::of(Version::HTTP_11, address).await
    }

    /// HTTP/2 by prior knowledge.
    pub async fn http2(address: SocketAddr) -> Session {
        Self::of(Version::HTTP_2, address).await
    }

    pub async fn of(version: Version, address: SocketAddr) -> Session {
        let (stream, socket) = open(address);
        Self::on(stream, "http", version, socket).await
    }

    /// Trusting one certificate.
    pub async fn over_tls(version: Version, address: SocketAddr, trusted: CertificateDer<'static>) -> Session {
        let (stream, socket) = open(address);
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        let stream = tls_connect(stream, trusted, alpn).await.expect("a handshake");
        Self::on(stream, "https", version, socket).await
    }

    async fn on<S>(stream: S, scheme: &'static str, version: Version, socket: std::net::TcpStream) -> Session
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        if version == Version::HTTP_2 {
            let handshake =
                http2::Builder::new(TokioExecutor::new()).max_header_list_size(1 << 20).handshake(stream).await;
            let (sender, connection) = handshake.expect("a connection");
            let connection = tokio::spawn(async move { drop(connection.await) });
            return Session { sender: Sender::Http2(sender, scheme), connection, socket };
        }
        let handshake = http1::Builder::new().max_headers(200).handshake(stream).await;
        let (sender, connection) = handshake.expect("a connection");
        let connection = tokio::spawn(async move { drop(connection.await) });
        Session { sender: Sender::Http1(Arc::new(Mutex::new(sender))), connection, socket }
    }

    /// `path` and headers; scheme, authority and Host are added as the protocol wants them.
    pub async fn send(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.try_send(request).await.expect("an answer")
    }

    pub async fn try_send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        let sending = self.sender.clone().send(request);
        tokio::time::timeout(PATIENCE, sending).await.expect("an answer in time")
    }

    /// As [`Session::send`], for what may take its time.
    pub async fn send_patiently(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.sender.clone().send(request).await.expect("an answer")
    }

    /// For requests that run beside each other.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Ends the connection, whatever is still on it.
    pub fn cut(self) {
        self.socket.shutdown(std::net::Shutdown::Both).expect("it is open");
    }

    /// Asserts that the gateway ends the connection.
    pub async fn ends(self) {
        // A client that still holds its sender would like to send more.
        tokio::time::timeout(PATIENCE, self.connection).await.expect("the connection ends").expect("no panic");
    }

    /// Has the gateway ended the connection by now?
    pub fn has_ended(&self) -> bool {
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

/// A body that comes as it is sent, and ends when the sender is dropped.
pub fn streamed() -> (Pieces, Body) {
    let (pieces, mut received) = mpsc::channel(1);
    let frames = futures_util::stream::poll_fn(move |context| received.poll_recv(context));
    (Pieces(pieces), StreamBody::new(frames).boxed_unsync())
}

pub struct Pieces(mpsc::Sender<Result<Frame<Bytes>, Infallible>>);

impl Pieces {
    pub async fn send(&self, bytes: impl Into<Bytes>) {
        self.0.send(Ok(Frame::data(bytes.into()))).await.expect("somebody reads the body");
    }

    /// `false` if nobody reads the body any more.
    pub async fn try_send(&self, bytes: impl Into<Bytes>) -> bool {
        self.0.send(Ok(Frame::data(bytes.into()))).await.is_ok()
    }

    /// Ends with one trailer.
    pub async fn end_with(self, name: &'static str, value: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, http::HeaderValue::from_static(value));
        self.0.send(Ok(Frame::trailers(trailers))).await.expect("somebody reads the body");
    }
}

/// The next piece of an answer's body; `None` at its end.
pub async fn next_piece(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a piece of the body in time");
        let piece = frame?.expect("the body goes on").into_data().expect("data");
        // HTTP/2 may end a body with a frame of nothing.
        if !piece.is_empty() {
            return Some(piece);
        }
    }
}

pub async fn text(body: Incoming) -> String {
    text_and_trailers(body).await.0
}

pub async fn text_and_trailers(body: Incoming) -> (String, Option<HeaderMap>) {
    let collected = tokio::time::timeout(PATIENCE, body.collect()).await.expect("the whole body in time");
    let collected = collected.expect("a whole body");
    let trailers = collected.trailers().cloned();
    (String::from_utf8_lossy(&collected.to_bytes()).into_owned(), trailers)
}

/// Tries again and again until `holds`; panics if it never does.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

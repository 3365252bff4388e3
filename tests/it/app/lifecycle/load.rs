//! Clients that send requests all the time, and fail at any wrong response.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use http::{Method, Request, Version};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::TokenPair;
use crate::support::client::tls_connect;
use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::wire::TIMEOUT;

/// How long a client waits between two messages, refreshes or rejected requests.
const PACE: Duration = Duration::from_millis(20);

/// What a stream sends after each pause: ten times `limits.min_upload_rate`, so that a client that is delayed on a busy
/// machine is fast enough.
const PIECE: &str = "more, and more, and more, and more, and more, and more";

/// How clients connect.
#[derive(Clone)]
pub enum Transport {
    Cleartext(SocketAddr),
    /// The address, and the certificate that clients trust.
    Tls(SocketAddr, CertificateDer<'static>),
}

impl From<SocketAddr> for Transport {
    fn from(address: SocketAddr) -> Transport {
        Transport::Cleartext(address)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

impl Transport {
    /// Opens a connection for HTTP/1.1. Over TLS, each one has a full handshake.
    async fn connect(&self) -> Box<dyn Duplex> {
        let (Transport::Cleartext(address) | Transport::Tls(address, _)) = self;
        let stream = TcpStream::connect(address).await.expect("the gateway accepts the connection");
        match self {
            Transport::Cleartext(_) => Box::new(stream),
            Transport::Tls(_, trusted) => {
                Box::new(tls_connect(stream, trusted.clone(), "http/1.1").await.expect("a handshake"))
            }
        }
    }

    async fn connection(&self, version: Version) -> HttpConnection {
        match self {
            Transport::Cleartext(address) => HttpConnection::of(version, *address).await,
            Transport::Tls(address, trusted) => HttpConnection::over_tls(version, *address, trusted.clone()).await,
        }
    }
}

/// The token that clients send. The test can replace it.
#[derive(Clone)]
pub struct Current(Arc<Mutex<Arc<str>>>);

impl Current {
    pub fn new(token: &str) -> Current {
        Current(Arc::new(Mutex::new(token.into())))
    }

    fn token(&self) -> Arc<str> {
        self.0.lock().expect("unpoisoned").clone()
    }

    /// Replaces the token. Returns when no client uses the previous one.
    pub async fn becomes(&self, token: &str) {
        let before = std::mem::replace(&mut *self.0.lock().expect("unpoisoned"), token.into());
        eventually("no client uses the previous token", || Arc::strong_count(&before) == 1).await;
    }
}

pub struct Load {
    stop: Arc<AtomicBool>,
    /// The longest time that a client waited for a response on a new connection, in milliseconds.
    longest: Arc<AtomicU64>,
    clients: Vec<Client>,
}

struct Client {
    /// How many responses the client got.
    responses: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Load {
    pub fn begin() -> Load {
        Load { stop: Arc::default(), longest: Arc::default(), clients: Vec::new() }
    }

    /// Starts one more client, and passes it the counter of its responses.
    fn begin_client<F: Future<Output = ()> + Send + 'static>(&mut self, client: impl FnOnce(Arc<AtomicUsize>) -> F) {
        let responses: Arc<AtomicUsize> = Arc::default();
        let task = tokio::spawn(client(responses.clone()));
        self.clients.push(Client { responses, task });
    }

    /// Starts `count` clients that open a new connection for each request.
    pub fn new_connections(mut self, transport: impl Into<Transport>, count: usize) -> Self {
        let transport = transport.into();
        for _ in 0..count {
            let (stop, longest, transport) = (self.stop.clone(), self.longest.clone(), transport.clone());
            self.begin_client(|responses| async move {
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    tokio::time::timeout(TIMEOUT, request_on_new_connection(&transport))
                        .await
                        .expect("a response in time");
                    let waited = u64::try_from(began.elapsed().as_millis()).expect("fits into 64 bits");
                    longest.fetch_max(waited, Ordering::Relaxed);
                    responses.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        self
    }

    /// Starts a client that sends a revoked token on new connections. Each request must get 401.
    pub fn rejected(mut self, address: SocketAddr, token: &str) -> Self {
        let (stop, token) = (self.stop.clone(), token.to_owned());
        self.begin_client(|responses| async move {
            while !stop.load(Ordering::Relaxed) {
                let response = crate::support::Client::http1(address).bearer(&token).get("/private").await;
                assert_eq!(response.status, 401, "a revoked token: {response:?}");
                responses.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PACE).await;
            }
        });
        self
    }

    /// Starts a client that refreshes its session on new connections, each time with the token that it got last.
    pub fn refreshes(mut self, address: SocketAddr, mut pair: TokenPair) -> Self {
        let stop = self.stop.clone();
        self.begin_client(|responses| async move {
            while !stop.load(Ordering::Relaxed) {
                let refresh = json!({ "refreshToken": pair.refresh });
                let response =
                    crate::support::Client::http1(address).bearer(&pair.access).post("/user/refresh", &refresh).await;
                assert_eq!(response.status, 200, "a refresh: {response:?}");
                pair = TokenPair::from_json(&response.json());
                responses.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PACE).await;
            }
        });
        self
    }

    /// Starts `count` clients that keep their connections open.
    pub fn kept_connections(self, transport: impl Into<Transport>, version: Version, count: usize) -> Self {
        self.on_kept_connections(&transport.into(), version, count, None)
    }

    /// As [`Load::kept_connections`], but each client sends a token, to `/private`.
    pub fn bearers(self, transport: impl Into<Transport>, version: Version, count: usize, token: &Current) -> Self {
        self.on_kept_connections(&transport.into(), version, count, Some(token))
    }

    fn on_kept_connections(
        mut self,
        transport: &Transport,
        version: Version,
        count: usize,
        token: Option<&Current>,
    ) -> Self {
        for _ in 0..count {
            let (stop, transport, token) = (self.stop.clone(), transport.clone(), token.cloned());
            self.begin_client(|responses| async move {
                let mut connection = transport.connection(version).await;
                while !stop.load(Ordering::Relaxed) {
                    // Kept until the response has arrived, so that `Current::becomes` can wait for it.
                    let token = token.as_ref().map(Current::token);
                    match connection.try_send(get(token.as_deref())).await {
                        Ok(response) => {
                            assert_eq!(response.status(), 200);
                            assert_eq!(connection::text(response.into_body()).await, "hello");
                            responses.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                        // The gateway closed the connection in order before this request was sent.
                        Err(error) if error.is_canceled() || error.is_closed() => {
                            drop(connection);
                            connection = transport.connection(version).await;
                        }
                        Err(error) => panic!("a request was lost: {error:?}"),
                    }
                }
            });
        }
        self
    }

    /// Starts a WebSocket that sends a message every 20 ms.
    pub async fn websocket(self, transport: impl Into<Transport>) -> Self {
        self.exchanging_messages(&transport.into(), "ws://gateway.test/ws".into_client_request().expect("a request"))
            .await
    }

    /// As [`Load::websocket`], with a token.
    pub async fn bearers_websocket(self, transport: impl Into<Transport>, token: &str) -> Self {
        let mut request = "ws://gateway.test/private/ws".into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header value"));
        self.exchanging_messages(&transport.into(), request).await
    }

    async fn exchanging_messages(mut self, transport: &Transport, request: Request<()>) -> Self {
        let (mut socket, _) = client_async(request, transport.connect().await).await.expect("a WebSocket");
        let stop = self.stop.clone();
        self.begin_client(|responses| async move {
            while !stop.load(Ordering::Relaxed) {
                socket.send(Message::text("still there?")).await.expect("the WebSocket is open");
                let echo = socket.next().await.expect("the WebSocket is open").expect("a message");
                assert!(echo == Message::text("still there?"));
                responses.fetch_add(1, Ordering::Relaxed);
                // The pace of the messages, not a wait for a condition.
                tokio::time::sleep(PACE).await;
            }
        });
        self
    }

    /// Starts server-sent events with a token. The gateway sends only heartbeats on them.
    pub async fn bearers_events(mut self, transport: impl Into<Transport>, version: Version, token: &str) -> Self {
        let request = Request::get("/private/events").header("authorization", format!("Bearer {token}"));
        let mut connection = transport.into().connection(version).await;
        let response = connection.send(request.body(connection::empty()).expect("a request")).await;
        assert_eq!(response.status(), 200);
        let (mut events, stop) = (response.into_body(), self.stop.clone());
        self.begin_client(|responses| async move {
            while !stop.load(Ordering::Relaxed) {
                assert!(connection::next_chunk(&mut events).await.is_some(), "the events go on");
                responses.fetch_add(1, Ordering::Relaxed);
            }
            connection.abort();
        });
        self
    }

    /// Starts a request with a body and a response that go on until the load ends.
    pub async fn stream(mut self, transport: impl Into<Transport>, version: Version) -> Self {
        let (pieces, body) = connection::streamed();
        let request = Request::builder().method(Method::POST).uri("/mirror").body(body).expect("a request");
        let connection = transport.into().connection(version).await;
        let sending = connection.sender().send(request);
        let stop = self.stop.clone();
        self.begin_client(|responses| async move {
            let first = pieces.send("first");
            let (response, ()) = tokio::join!(sending, first);
            let mut response = response.expect("a response").into_body();
            assert_eq!(connection::next_chunk(&mut response).await.as_deref(), Some(&b"first"[..]));
            while !stop.load(Ordering::Relaxed) {
                pieces.send(PIECE).await;
                assert_eq!(connection::next_chunk(&mut response).await.as_deref(), Some(PIECE.as_bytes()));
                responses.fetch_add(1, Ordering::Relaxed);
                // The pace of the messages, not a wait for a condition.
                tokio::time::sleep(PACE).await;
            }
            drop(pieces);
            assert!(connection::next_chunk(&mut response).await.is_none(), "the response ends in order");
            drop(connection);
        });
        self
    }

    /// Returns how many responses each client got.
    fn responses(&self) -> Vec<usize> {
        self.clients.iter().map(|client| client.responses.load(Ordering::Relaxed)).collect()
    }

    /// Waits for `count` more responses, at least one of them for each client.
    pub async fn goes_on_for(&self, count: usize) {
        let before = self.responses();
        eventually("the load goes on", || {
            let more: Vec<_> = self.responses().iter().zip(&before).map(|(now, before)| now - before).collect();
            self.has_failed() || more.iter().sum::<usize>() >= count && more.iter().all(|more| *more > 0)
        })
        .await;
        assert!(!self.has_failed(), "a client has failed");
    }

    fn has_failed(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.clients.iter().any(|client| client.task.is_finished())
    }

    /// Asserts that no client failed. Returns the number of responses, and how long the slowest new connection waited.
    pub async fn end(self) -> (usize, Duration) {
        let responses = self.responses().iter().sum();
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.task.await.expect("no client has failed");
        }
        (responses, Duration::from_millis(self.longest.load(Ordering::Relaxed)))
    }
}

fn get(token: Option<&str>) -> Request<connection::Body> {
    let request = match token {
        None => Request::get("/"),
        Some(token) => Request::get("/private").header("authorization", format!("Bearer {token}")),
    };
    request.body(connection::empty()).expect("a request")
}

/// Sends one request on a new connection, and reads to its orderly close.
async fn request_on_new_connection(transport: &Transport) {
    let mut stream = transport.connect().await;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("the gateway reads it");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response, and an orderly close");
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nhello"), "{response}");
}

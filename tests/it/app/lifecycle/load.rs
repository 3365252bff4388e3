//! Clients that ask all the time, and take no other answer than the right one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use http::{Method, Request, Version};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::client::tls_connect;
use crate::support::session::{self, Session, eventually};
use crate::support::wire::PATIENCE;

/// Where clients come in.
#[derive(Clone)]
pub enum Way {
    Cleartext(SocketAddr),
    /// And whom they trust.
    Tls(SocketAddr, CertificateDer<'static>),
}

impl From<SocketAddr> for Way {
    fn from(address: SocketAddr) -> Way {
        Way::Cleartext(address)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

impl Way {
    /// For HTTP/1.1. Over TLS, each time with a full handshake.
    async fn connect(&self) -> Box<dyn Duplex> {
        let (Way::Cleartext(address) | Way::Tls(address, _)) = self;
        let stream = TcpStream::connect(address).await.expect("nobody is refused");
        match self {
            Way::Cleartext(_) => Box::new(stream),
            Way::Tls(_, trusted) => {
                Box::new(tls_connect(stream, trusted.clone(), "http/1.1").await.expect("a handshake"))
            }
        }
    }

    async fn session(&self, version: Version) -> Session {
        match self {
            Way::Cleartext(address) => Session::of(version, *address).await,
            Way::Tls(address, trusted) => Session::over_tls(version, *address, trusted.clone()).await,
        }
    }
}

/// The token that clients ask with, until it is another.
#[derive(Clone)]
pub struct Current(Arc<Mutex<Arc<str>>>);

impl Current {
    pub fn new(token: &str) -> Current {
        Current(Arc::new(Mutex::new(token.into())))
    }

    fn token(&self) -> Arc<str> {
        self.0.lock().expect("unpoisoned").clone()
    }

    /// Returns when nobody asks with the one before any more.
    pub async fn becomes(&self, token: &str) {
        let before = std::mem::replace(&mut *self.0.lock().expect("unpoisoned"), token.into());
        eventually("nobody asks with it any more", || Arc::strong_count(&before) == 1).await;
    }
}

pub struct Load {
    stop: Arc<AtomicBool>,
    /// Milliseconds that somebody had to wait, at most, for an answer on a new connection.
    longest: Arc<AtomicU64>,
    clients: Vec<Client>,
}

struct Client {
    /// Answers that it had.
    answered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Load {
    pub fn begin() -> Load {
        Load { stop: Arc::default(), longest: Arc::default(), clients: Vec::new() }
    }

    /// One more client, which is told where it counts its answers.
    fn begin_client<F: Future<Output = ()> + Send + 'static>(&mut self, client: impl FnOnce(Arc<AtomicUsize>) -> F) {
        let answered: Arc<AtomicUsize> = Arc::default();
        let task = tokio::spawn(client(answered.clone()));
        self.clients.push(Client { answered, task });
    }

    /// So many clients, each on a new connection for every request.
    pub fn newcomers(mut self, way: impl Into<Way>, count: usize) -> Self {
        let way = way.into();
        for _ in 0..count {
            let (stop, longest, way) = (self.stop.clone(), self.longest.clone(), way.clone());
            self.begin_client(|answered| async move {
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    tokio::time::timeout(PATIENCE, arrive(&way)).await.expect("an answer in time");
                    let waited = u64::try_from(began.elapsed().as_millis()).expect("not for ever");
                    longest.fetch_max(waited, Ordering::Relaxed);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        self
    }

    /// So many clients that keep their connections for as long as those live.
    pub fn regulars(self, way: impl Into<Way>, version: Version, count: usize) -> Self {
        self.keeping(&way.into(), version, count, None)
    }

    /// As [`Load::regulars`], of which each shows a token, at `/private`.
    pub fn bearers(self, way: impl Into<Way>, version: Version, count: usize, token: &Current) -> Self {
        self.keeping(&way.into(), version, count, Some(token))
    }

    fn keeping(mut self, way: &Way, version: Version, count: usize, token: Option<&Current>) -> Self {
        for _ in 0..count {
            let (stop, way, token) = (self.stop.clone(), way.clone(), token.cloned());
            self.begin_client(|answered| async move {
                let mut session = way.session(version).await;
                while !stop.load(Ordering::Relaxed) {
                    // Held until the answer is here.
                    let token = token.as_ref().map(Current::token);
                    match session.try_send(get(token.as_deref())).await {
                        Ok(answer) => {
                            assert_eq!(answer.status(), 200);
                            assert_eq!(session::text(answer.into_body()).await, "hello");
                            answered.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                        // The connection was closed in an orderly way before this was sent.
                        Err(error) if error.is_canceled() || error.is_closed() => {
                            drop(session);
                            session = way.session(version).await;
                        }
                        Err(error) => panic!("a request was lost: {error:?}"),
                    }
                }
            });
        }
        self
    }

    /// A WebSocket that speaks now and then.
    pub async fn websocket(self, way: impl Into<Way>) -> Self {
        self.speaking(&way.into(), "ws://gateway.test/ws".into_client_request().expect("a request")).await
    }

    /// As [`Load::websocket`], standing on a token.
    pub async fn bearers_websocket(self, way: impl Into<Way>, token: &str) -> Self {
        let mut request = "ws://gateway.test/private/ws".into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header value"));
        self.speaking(&way.into(), request).await
    }

    async fn speaking(mut self, way: &Way, request: Request<()>) -> Self {
        let (mut socket, _) = client_async(request, way.connect().await).await.expect("a WebSocket");
        let stop = self.stop.clone();
        self.begin_client(|answered| async move {
            while !stop.load(Ordering::Relaxed) {
                socket.send(Message::text("still there?")).await.expect("it is open");
                let echo = socket.next().await.expect("it is open").expect("a message");
                assert!(echo == Message::text("still there?"));
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        self
    }

    /// Server-sent events that stand on a token, and of which nothing but heartbeats comes.
    pub async fn bearers_events(mut self, way: impl Into<Way>, version: Version, token: &str) -> Self {
        let request = Request::get("/private/events").header("authorization", format!("Bearer {token}"));
        let mut session = way.into().session(version).await;
        let answer = session.send(request.body(session::empty()).expect("a request")).await;
        assert_eq!(answer.status(), 200);
        let (mut events, stop) = (answer.into_body(), self.stop.clone());
        self.begin_client(|answered| async move {
            while !stop.load(Ordering::Relaxed) {
                assert!(session::next_piece(&mut events).await.is_some(), "they go on");
                answered.fetch_add(1, Ordering::Relaxed);
            }
            session.cut();
        });
        self
    }

    /// A request whose answer goes on and on, both ways.
    pub async fn stream(mut self, way: impl Into<Way>, version: Version) -> Self {
        let (pieces, body) = session::streamed();
        let request = Request::builder().method(Method::POST).uri("/mirror").body(body).expect("a request");
        let session = way.into().session(version).await;
        let sending = session.sender().send(request);
        let stop = self.stop.clone();
        self.begin_client(|answered| async move {
            let first = pieces.send("first");
            let (answer, ()) = tokio::join!(sending, first);
            let mut answer = answer.expect("an answer").into_body();
            assert_eq!(session::next_piece(&mut answer).await.as_deref(), Some(&b"first"[..]));
            while !stop.load(Ordering::Relaxed) {
                pieces.send("more").await;
                assert_eq!(session::next_piece(&mut answer).await.as_deref(), Some(&b"more"[..]));
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            drop(pieces);
            assert!(session::next_piece(&mut answer).await.is_none(), "it ends in order");
            drop(session);
        });
        self
    }

    /// How many answers each client had.
    fn answered(&self) -> Vec<usize> {
        self.clients.iter().map(|client| client.answered.load(Ordering::Relaxed)).collect()
    }

    /// Waits until there were so many more answers, and one at least for each client.
    pub async fn goes_on_for(&self, count: usize) {
        let before = self.answered();
        eventually("the load goes on", || {
            let more: Vec<_> = self.answered().iter().zip(&before).map(|(now, before)| now - before).collect();
            self.has_failed() || more.iter().sum::<usize>() >= count && more.iter().all(|more| *more > 0)
        })
        .await;
        assert!(!self.has_failed(), "a client has failed");
    }

    fn has_failed(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.clients.iter().any(|client| client.task.is_finished())
    }

    /// Asserts that nobody has failed. Answers how many answers there were, and how long the slowest newcomer waited.
    pub async fn end(self) -> (usize, Duration) {
        let answered = self.answered().iter().sum();
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.task.await.expect("no client has failed");
        }
        (answered, Duration::from_millis(self.longest.load(Ordering::Relaxed)))
    }
}

fn get(token: Option<&str>) -> Request<session::Body> {
    let request = match token {
        None => Request::get("/"),
        Some(token) => Request::get("/private").header("authorization", format!("Bearer {token}")),
    };
    request.body(session::empty()).expect("a request")
}

/// One request on a new connection, and the orderly end of that.
async fn arrive(way: &Way) {
    let mut stream = way.connect().await;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("the gateway takes it");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer, and an orderly end");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello"), "{answer}");
}

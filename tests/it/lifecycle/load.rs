//! Clients that ask all the time, and take no other answer than the right one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use http::{Method, Request, Version};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::Wire;
use crate::support::session::{self, Session, eventually};

pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    /// Milliseconds that somebody had to wait, at most, for an answer on a new connection.
    longest: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn begin() -> Load {
        Load { stop: Arc::default(), answered: Arc::default(), longest: Arc::default(), tasks: Vec::new() }
    }

    /// So many clients, each on a new connection for every request.
    pub fn newcomers(mut self, address: SocketAddr, count: usize) -> Self {
        for _ in 0..count {
            let (stop, answered, longest) = (self.stop.clone(), self.answered.clone(), self.longest.clone());
            self.tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let stream = TcpStream::connect(address).await.expect("nobody is refused");
                    let mut wire = Wire::of(stream);
                    wire.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
                    let answer = wire.answer().await;
                    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
                    let waited = u64::try_from(began.elapsed().as_millis()).expect("not for ever");
                    longest.fetch_max(waited, Ordering::Relaxed);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        self
    }

    /// So many clients that keep their connections for as long as those live.
    pub fn regulars(mut self, address: SocketAddr, version: Version, count: usize) -> Self {
        for _ in 0..count {
            let (stop, answered) = (self.stop.clone(), self.answered.clone());
            self.tasks.push(tokio::spawn(async move {
                let mut session = Session::of(version, address).await;
                while !stop.load(Ordering::Relaxed) {
                    let request = Request::get("/").body(session::empty()).expect("a request");
                    match session.try_send(request).await {
                        Ok(answer) => {
                            assert_eq!(answer.status(), 200);
                            assert_eq!(session::text(answer.into_body()).await, "hello");
                            answered.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                        // The connection was closed in an orderly way before this was sent.
                        Err(error) if error.is_canceled() || error.is_closed() => {
                            session = Session::of(version, address).await;
                        }
                        Err(error) => panic!("a request was lost: {error:?}"),
                    }
                }
            }));
        }
        self
    }

    /// A WebSocket that speaks now and then.
    pub async fn websocket(mut self, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("nobody is refused");
        let (mut socket, _) = client_async("ws://gateway.test/ws", stream).await.expect("a WebSocket");
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                socket.send(Message::text("still there?")).await.expect("it is open");
                let echo = socket.next().await.expect("it is open").expect("a message");
                assert!(echo == Message::text("still there?"));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
        self
    }

    /// A request whose answer goes on and on, both ways.
    pub async fn stream(mut self, address: SocketAddr, version: Version) -> Self {
        let (pieces, body) = session::streamed();
        let request = Request::builder().method(Method::POST).uri("/mirror").body(body).expect("a request");
        let session = Session::of(version, address).await;
        let sending = session.sender().send(request);
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move {
            let first = pieces.send("first");
            let (answer, ()) = tokio::join!(sending, first);
            let mut answer = answer.expect("an answer").into_body();
            assert_eq!(session::next_piece(&mut answer).await.as_deref(), Some(&b"first"[..]));
            while !stop.load(Ordering::Relaxed) {
                pieces.send("more").await;
                assert_eq!(session::next_piece(&mut answer).await.as_deref(), Some(&b"more"[..]));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            drop(pieces);
            assert!(session::next_piece(&mut answer).await.is_none(), "it ends in order");
            drop(session);
        }));
        self
    }

    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more were answered.
    pub async fn goes_on_for(&self, count: usize) {
        let before = self.answered();
        eventually("the load goes on", || self.has_failed() || self.answered() >= before + count).await;
        assert!(!self.has_failed(), "a client has failed");
    }

    fn has_failed(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Asserts that nobody has failed. Answers how many requests there were, and how long the slowest newcomer waited.
    pub async fn end(self) -> (usize, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no client has failed");
        }
        (self.answered.load(Ordering::Relaxed), Duration::from_millis(self.longest.load(Ordering::Relaxed)))
    }
}

//! A backend that follows a script, for everything that a proper one would not do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::wire::Wire;

/// Plays its script on every connection. The connection closes when the script ends, everything when this is dropped.
pub struct Scripted {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Scripted {
    /// `script` is told the connection, and which one it is: 0 for the first.
    pub fn start<S, F>(script: S) -> Scripted
    where
        S: Fn(Wire, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self::on(socket, script)
    }

    pub fn on<S, F>(socket: std::net::TcpListener, script: S) -> Scripted
    where
        S: Fn(Wire, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        let (connections, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (count, ends) = (connections.clone(), ended.clone());
        let accepting = tokio::spawn(async move {
            let listener = TcpListener::from_std(socket).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (playing, ends) = (script(Wire::of(stream), number), ends.clone());
                tokio::spawn(async move {
                    playing.await;
                    ends.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Scripted { address, connections, ended, accepting }
    }

    /// Answers every request with the same bytes, and keeps the connection.
    pub fn answering(answer: &'static str) -> Scripted {
        Self::start(move |mut wire, _| async move {
            while wire.try_hear_until("\r\n\r\n").await.is_some() {
                wire.say(answer).await;
            }
        })
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections on which the script has been played to its end.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

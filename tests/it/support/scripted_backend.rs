//! A backend that reads and writes raw bytes as a script says, also in ways that no correct server does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::wire::Wire;

/// Runs its script on each connection. The connection closes when the script ends. Dropping the backend stops it.
pub struct ScriptedBackend {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl ScriptedBackend {
    /// Calls `script` with each connection and its number, from 0.
    pub fn start<S, F>(script: S) -> ScriptedBackend
    where
        S: Fn(Wire, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self::on(socket, script)
    }

    pub fn on<S, F>(socket: std::net::TcpListener, script: S) -> ScriptedBackend
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
                let (running, ends) = (script(Wire::of(stream), number), ends.clone());
                tokio::spawn(async move {
                    running.await;
                    ends.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        ScriptedBackend { address, connections, ended, accepting }
    }

    /// Sends the same response to each request, and keeps the connection open.
    pub fn responding_with(response: &'static str) -> ScriptedBackend {
        Self::start(move |mut wire, _| async move {
            while wire.try_read_until("\r\n\r\n").await.is_some() {
                wire.send(response).await;
            }
        })
    }

    /// Number of connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Number of connections on which the script has ended.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedBackend {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

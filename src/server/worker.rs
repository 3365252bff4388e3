//! One worker: a thread with its own runtime that accepts connections on its own listeners.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use super::admission::{self, Arrival};
use super::crowd::CrowdQueue;
use super::linger_slots::LingerSlots;
use super::shared::{Shared, WorkerState};
use crate::gateway::worker::Worker;
use crate::protocols::socket;
use crate::protocols::tls::ServerTls;
use crate::tokens::dpop::PublicUrl;

/// How long a listener pauses after `accept` failed, for example because no file descriptor or memory was left. Without
/// the pause it would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum connections accepted in a row. Each may have a handshake waiting, and other tasks wait for all of them.
const ACCEPT_BATCH: u32 = 8;

/// How long streams have to send their close message after `timeouts.drain`.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// A bound listener of one worker.
pub struct Listener {
    pub socket: std::net::TcpListener,
    /// Loaded for each connection: a reload replaces it.
    pub tls: Option<Arc<ArcSwap<ServerTls>>>,
    pub proxy_protocol: bool,
    /// `listener.public_url`
    pub public_url: Option<Arc<PublicUrl>>,
}

/// Starts a worker. Its thread ends when all connections are closed during the drain, or when `timeouts.drain` is over.
pub fn spawn(worker: Arc<Worker>, listeners: Vec<Listener>, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(format!("worker-{}", worker.number)).spawn(move || {
        let linger = shared.settings.load().linger;
        let linger_slots = LingerSlots::new(linger, worker.metrics.clone());
        let state = WorkerState { shared, worker, linger_slots, crowd: CrowdQueue::new(), drain: Notify::new() };
        runtime.block_on(run(Arc::new(state), listeners));
        // The tasks that are left had their time.
        runtime.shutdown_background();
    })
}

async fn run(state: Arc<WorkerState>, listeners: Vec<Listener>) {
    // Each listener and connection holds a sender. The receiver returns when all are dropped.
    let (alive, mut all_closed) = mpsc::channel::<Infallible>(1);
    for listener in listeners {
        tokio::spawn(listen(listener, state.clone(), alive.clone()));
    }
    drop(alive);
    let streams = &state.worker.streams;
    tokio::spawn(streams.clone().watch());
    state.shared.drain_begins().await;
    state.drain.notify_waiters();
    // At once: their clients can reconnect to another process, and have the whole drain for it.
    streams.drain();
    let time = state.shared.settings.load().drain;
    if tokio::time::timeout(time, all_closed.recv()).await.is_ok() {
        return;
    }
    streams.end_drain();
    if tokio::time::timeout(CLOSE_TIME.min(time), all_closed.recv()).await.is_err() {
        tracing::warn!(worker = state.worker.number, "timeouts.drain is over: closing the remaining connections");
    }
}

async fn listen(listener: Listener, state: Arc<WorkerState>, alive: mpsc::Sender<Infallible>) {
    let Listener { socket, tls, proxy_protocol, public_url } = listener;
    // Each connection inherits them, which saves five system calls. A socket of systemd or of another process may lack
    // them.
    socket::set_options(&socket);
    let socket = match socket::into_tokio(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "failed to listen"),
    };
    let serve = |stream: TcpStream, address: SocketAddr| {
        let arrival = Arrival { address, proxy_protocol, public_url: public_url.clone() };
        tokio::spawn(admission::serve(stream, arrival, tls.clone(), state.clone(), alive.clone()));
    };
    tokio::select! {
        never = accept(&socket, &serve) => match never {},
        () = state.shared.drain_begins() => {}
    }
    // The clients of connections that the kernel accepted before this listener closes expect a response. The runtime
    // learns of these connections only at its next turn, so they are accepted without it.
    let Ok(socket) = socket.into_std() else { return };
    // No more than the backlog: if another process listens here, it gets the connections that come later.
    for (stream, address) in (0..socket::BACKLOG).map_while(|_| socket.accept().ok()) {
        if let Ok(stream) = socket::into_tokio_stream(stream) {
            serve(stream, address);
        }
    }
}

async fn accept(socket: &TcpListener, serve: &impl Fn(TcpStream, SocketAddr)) -> Infallible {
    let mut left = ACCEPT_BATCH;
    loop {
        if left == 0 {
            tokio::task::yield_now().await;
            left = ACCEPT_BATCH;
        }
        left -= 1;
        match socket.accept().await {
            Ok((stream, address)) => serve(stream, address),
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

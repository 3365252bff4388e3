//! One worker: a thread with its own runtime, accepting on its own listeners.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Listener, Shared, connection};
use crate::gateway::worker::Worker;
use crate::protocols::socket;

/// After the process ran out of file descriptors or memory, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// So many connections are accepted at one go: each may have a handshake waiting, and others wait for them all.
const AT_ONE_GO: u32 = 8;

/// For what is told only when the time of the drain is up.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Starts a worker. Its thread ends when the process has drained, or the drain's deadline has passed.
pub fn spawn(worker: Arc<Worker>, listeners: Vec<Listener>, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(format!("worker-{}", worker.number)).spawn(move || {
        runtime.block_on(run(worker, listeners, shared));
        // Whatever is left has had its time.
        runtime.shutdown_background();
    })
}

async fn run(worker: Arc<Worker>, listeners: Vec<Listener>, shared: Arc<Shared>) {
    // Every listener and connection holds a sender; when all are gone, the receiver learns it.
    let (alive, mut all_gone) = mpsc::channel::<Infallible>(1);
    for listener in listeners {
        tokio::spawn(accept(listener, shared.clone(), worker.clone(), alive.clone()));
    }
    drop(alive);
    tokio::spawn(worker.streams.clone().watch());
    shared.drains().await;
    // At once: their clients can connect elsewhere, and have all of the time that there is.
    worker.streams.drain();
    let time = shared.settings.drain;
    if tokio::time::timeout(time, all_gone.recv()).await.is_ok() {
        return;
    }
    worker.streams.end_drain();
    if tokio::time::timeout(LAST_WORDS.min(time), all_gone.recv()).await.is_err() {
        tracing::warn!(worker = worker.number, "the drain's deadline passed; remaining connections are cut");
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>, worker: Arc<Worker>, alive: mpsc::Sender<Infallible>) {
    let Listener { socket, tls, proxy_protocol } = listener;
    let socket = match socket::into_tokio(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "a listener cannot be used"),
    };
    let serve = |stream, address| {
        let (tls, shared, worker, alive) =
            (tls.as_ref().map(|tls| tls.load_full()), shared.clone(), worker.clone(), alive.clone());
        tokio::spawn(connection::serve(stream, address, proxy_protocol, tls, shared, worker, alive));
    };
    let mut left = AT_ONE_GO;
    loop {
        if left == 0 {
            tokio::task::yield_now().await;
            left = AT_ONE_GO;
        }
        left -= 1;
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = shared.drains() => break,
        };
        match accepted {
            Ok((stream, address)) => {
                serve(stream, address);
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Connections that the kernel accepted before the listener closes were promised an answer. The kernel is asked itself:
    // the runtime learns of them only at its next turn.
    let Ok(socket) = socket.into_std() else { return };
    // If another process goes on listening here, what comes later is for that.
    for (stream, address) in (0..socket::BACKLOG).map_while(|_| socket.accept().ok()) {
        if let Ok(stream) = socket::into_tokio_stream(stream) {
            serve(stream, address);
        }
    }
}

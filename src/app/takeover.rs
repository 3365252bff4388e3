//! Take-over by another gateway with the same addresses and store, for example a newer version.
//!
//! 1. The new gateway reads its configuration and secrets, and connects to a Unix socket beside the store
//!    (`bearward.db.take-over`), or beside the configuration with PostgreSQL (`bearward.take-over`).
//! 2. The old gateway hands over its listening sockets. The new one binds the addresses that the old one does not have,
//!    and confirms. If it cannot, it ends, and the old one goes on. Otherwise the old one accepts no more connections.
//! 3. The old gateway waits up to [`STORE_GRACE`] for requests in flight, and up to `control::REFRESH_GRACE` more for
//!    refreshes at providers. It delivers audit events once more, and closes the store. It sends which proofs were
//!    used, and drains for `timeouts.drain` without both: a refresh and a request with a proof get 503. It reads what
//!    the new gateway revokes ([`FOLLOW_INTERVAL`]), so that its streams end, too.
//! 4. The new gateway opens the store, reads the used proofs, and accepts. New connections have waited in the queues of
//!    the sockets.
//!
//! PostgreSQL is open in both gateways at once: the new one does not wait for it, and the old one keeps it until it has
//! drained, as any other replica. It sends the used proofs when its drain begins.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::config::StoreSettings;
use crate::protocols::local_socket::LocalListener;
use crate::protocols::socket_handover;

/// How long requests in flight can still use the store. Short, because new connections wait meanwhile.
pub(super) const STORE_GRACE: Duration = Duration::from_secs(1);

/// How often the old gateway reads revocations. Streams check every quarter of a second, and must end within a second.
pub(super) const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// How long the old gateway continues if it cannot read revocations.
pub(super) const FOLLOW_LIMIT: Duration = Duration::from_secs(2);

/// How long the new gateway waits for the store: longer than the old one takes to close it.
pub(super) const STORE_WAIT: Duration = Duration::from_secs(20);

/// How long to wait after a failed hand-over.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Copies of the listening sockets, until the gateway drains.
pub(super) type ListenerCopies = Arc<Mutex<Option<Vec<TcpListener>>>>;

/// The stream to the gateway that has the sockets, for what it gets later.
pub(super) type Successor = Arc<Mutex<Option<UnixStream>>>;

/// The Unix socket for take-overs: beside the store, because one gateway has the store. With PostgreSQL, two gateways
/// on one machine need two folders for their configurations.
pub(super) fn socket_path(store: &StoreSettings) -> PathBuf {
    let mut path = store.beside.clone().into_os_string();
    path.push(".take-over");
    path.into()
}

/// Waits for the next gateway, and returns when that has the sockets.
///
/// Without the Unix socket the gateway serves as well: the operator stops it before the next one starts.
pub(super) fn hand_over(
    store: &StoreSettings,
    copies: ListenerCopies,
    successor: Successor,
) -> impl Future<Output = ()> + use<> {
    let path = socket_path(store);
    // The store is open, so no other gateway uses this path. The path is removed before the store is closed.
    let offer = LocalListener::bind(&path);
    async move {
        match offer {
            Ok(offer) => {
                let stream = hand_over_on(offer, copies).await;
                *successor.lock() = Some(stream);
            }
            Err(error) => {
                tracing::warn!(socket = %path.display(), %error, "cannot offer a take-over to the next gateway");
                std::future::pending().await
            }
        }
    }
}

async fn hand_over_on(offer: LocalListener, copies: ListenerCopies) -> UnixStream {
    let listener = match offer.accepting() {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot offer a take-over to the next gateway");
            return std::future::pending().await;
        }
    };
    loop {
        let handed_over = async {
            let stream = listener.accept().await?.0.into_std()?;
            stream.set_nonblocking(false)?;
            let copies = copies.clone();
            // Blocks until the other gateway has read the sockets.
            spawn_blocking(move || send(stream, &copies)).await.map_err(io::Error::other)?
        };
        match handed_over.await {
            Ok(stream) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot hand over the listening sockets");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

fn send(stream: UnixStream, copies: &Mutex<Option<Vec<TcpListener>>>) -> io::Result<UnixStream> {
    let copies = copies.lock();
    let sockets = copies.as_deref().ok_or_else(|| io::Error::other("this gateway is draining"))?;
    socket_handover::send(stream, sockets)
}

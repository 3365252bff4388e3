//! Giving way to another process: the next gateway on the same addresses and the same store, such as a newer version.
//!
//! 1. The new one reads its configuration and secrets, and asks at a socket beside the store (`bearward.db.take-over`).
//! 2. This one hands over its listening sockets. From then on nothing of this process accepts.
//! 3. Requests under way have [`LAST_CALLS`] to end, and audit events that wait get a last delivery; then the store is let
//!    go of. What is still running goes on without it, for `timeouts.drain`: it is served, and a refresh that comes so late
//!    gets 503. What the new one revokes is read from the store ([`FOLLOW`]), so that streams end here as well.
//! 4. The new one has waited for the store, and accepts. Whoever connected meanwhile waited in the sockets' queues.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::spawn_blocking;

use crate::config::StoreSettings;
use crate::protocols::socket_handover;

/// Requests under way can still use the store for so long. Whoever connects has to wait for that, so it is short.
pub(super) const LAST_CALLS: Duration = Duration::from_secs(1);

/// How often what was revoked is read: streams look every quarter of a second, and have a second in all.
pub(super) const FOLLOW: Duration = Duration::from_millis(200);

/// For so long it may not be known what was revoked.
pub(super) const BLINDNESS: Duration = Duration::from_secs(2);

/// Longer than another gateway takes to let go of the store.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The listening sockets, until somebody else has them or the gateway ends.
pub(super) type ListenerCopies = Arc<Mutex<Option<Vec<TcpListener>>>>;

/// Where the next gateway asks. Beside the store, as there is one gateway for each.
pub(super) fn path(store: &StoreSettings) -> PathBuf {
    let mut path = store.sqlite.clone().into_os_string();
    path.push(".take-over");
    path.into()
}

/// Where the next gateway is waited for. Dropping it takes it away, which has to be done while the store is open: from then on
/// the place is another gateway's.
pub(super) struct TakeoverOffer {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
}

impl TakeoverOffer {
    /// To be made with the store open: then no other gateway has one.
    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Of a gateway that was killed.
            _ => {}
        }
        let offer = TakeoverOffer { listener: std::os::unix::net::UnixListener::bind(&path)?, path };
        // Who asks is looked at as well.
        fs::set_permissions(&offer.path, fs::Permissions::from_mode(0o600))?;
        offer.listener.set_nonblocking(true)?;
        Ok(offer)
    }
}

impl Drop for TakeoverOffer {
    fn drop(&mut self) {
        // One that is left behind does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns when the sockets have been handed over.
pub(super) async fn hand_over_when_asked(offer: TakeoverOffer, copies: ListenerCopies) {
    let offering = match offer.listener.try_clone().and_then(UnixListener::from_std) {
        Ok(offering) => offering,
        Err(error) => {
            tracing::error!(%error, "no other gateway can take over from this one");
            return std::future::pending().await;
        }
    };
    loop {
        let given = async {
            let stream = offering.accept().await?.0.into_std()?;
            stream.set_nonblocking(false)?;
            let copies = copies.clone();
            // It waits for the other side, for a moment.
            spawn_blocking(move || give(stream, &copies)).await.map_err(io::Error::other)?
        };
        match given.await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "the sockets were not handed over");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn give(stream: std::os::unix::net::UnixStream, copies: &Mutex<Option<Vec<TcpListener>>>) -> io::Result<()> {
    let copies = copies.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = copies.as_deref().ok_or_else(|| io::Error::other("this gateway is ending"))?;
    socket_handover::send(stream, sockets)
}

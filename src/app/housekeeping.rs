//! What goes on beside requests, on the control thread: the admin listener, and housekeeping at its intervals.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::prepare::SharedState;
use super::sockets::AdminSocket;
use crate::admin::{self, Admin};
use crate::protocols::socket;
use crate::store::sweep::sweep;
use crate::types::clock::{Clock, every};
use crate::types::reject::with_causes;

/// Confirmations reach the store this late at most.
const CONFIRM: Duration = Duration::from_millis(500);
/// A key begins to sign, and stops to verify, this late at most.
const KEYS: Duration = Duration::from_secs(1);
const TIDY: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(30);

/// Runs until `stopped`.
pub(super) async fn run(
    foundation: Arc<SharedState>,
    clock: Arc<dyn Clock>,
    admin: Arc<Admin>,
    sockets: AdminSocket,
    (mut stopped, replaced): (watch::Receiver<bool>, watch::Sender<bool>),
    handing_over: impl Future<Output = ()>,
) {
    let accepting = match socket::into_tokio(sockets.socket) {
        Ok(listener) => Some(tokio::spawn(admin::serve(listener, sockets.tls, admin))),
        Err(error) => {
            tracing::error!(%error, "the admin listener cannot be used");
            None
        }
    };
    let mut handing_over = pin!(handing_over);
    let mut confirm = every(CONFIRM);
    let mut tidy = every(TIDY);
    // Tasks of their own: a sweep of many rows takes long, as does a change of keys on a stuck disk, and nothing else here
    // may wait for them.
    let sweeping = tokio::spawn(keep_swept(foundation.clone(), clock.clone()));
    let keys = tokio::spawn(look_after_keys(foundation.clone(), clock.clone()));
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = confirm.tick(), if !*replaced.borrow() => flush_confirmations(&foundation).await,
            _ = tidy.tick() => foundation.revocations.remove_expired(),
            () = &mut handing_over, if !*replaced.borrow() => {
                // The store and the sockets are another's from here on. Admin connections that are open are served.
                accepting.iter().for_each(|accepting| accepting.abort());
                sweeping.abort();
                keys.abort();
                let _ = replaced.send(true);
            }
        }
    }
    sweeping.abort();
    keys.abort();
    // What was seen in use is worth a last write, unless the store is another's.
    if !*replaced.borrow() {
        flush_confirmations(&foundation).await;
    }
}

pub(super) async fn flush_confirmations(foundation: &SharedState) {
    let seen = foundation.seen_generations.drain();
    if seen.is_empty() {
        return;
    }
    if let Err(error) = foundation.broker.with_timeout(foundation.store.confirm(seen)).await {
        // Losing them makes rotation more lenient, nothing else.
        tracing::warn!(%error, "confirmations were not written");
    }
}

/// A fault that lasts is said once. What verifies and what signs stays as it is until it passes.
async fn look_after_keys(foundation: Arc<SharedState>, clock: Arc<dyn Clock>) {
    let (mut due, mut last_fault) = (every(KEYS), String::new());
    loop {
        due.tick().await;
        let changed = foundation.broker.own_keys.tick(clock.now()).await;
        let fault = changed.err().map(|error| with_causes(&error)).unwrap_or_default();
        if !fault.is_empty() && fault != last_fault {
            tracing::error!(fault, "the signing keys could not be looked after");
        }
        last_fault = fault;
    }
}

async fn keep_swept(foundation: Arc<SharedState>, clock: Arc<dyn Clock>) {
    let mut due = every(SWEEP);
    loop {
        due.tick().await;
        if let Err(error) = sweep(&*foundation.store, &*clock).await {
            tracing::warn!(%error, "the store was not swept");
        }
    }
}

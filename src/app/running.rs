//! A running gateway, and how it drains.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::audit::AuditThread;
use super::control::{self, ControlThread};
use super::error::StartError;
use super::reload::LiveConfig;
use super::reload_thread::ReloadThread;
use super::takeover::{self, ListenerCopies, Successor};
use super::thread;
use super::traces::TraceThread;
use crate::admin::Reloaded;
use crate::broker::Broker;
use crate::config::Config;
use crate::protocols::socket_handover;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::types::reject::with_causes;

/// How often to look whether the workers have ended.
const WORKER_POLL: Duration = Duration::from_millis(5);

/// A running gateway. [`Running::drain`] or dropping it shuts it down gracefully.
pub struct Running {
    /// The addresses of the listeners, in the order of the configuration, with the port that the system chose for port
    /// 0.
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
    /// The Unix socket of the admin API.
    pub admin_socket: PathBuf,
    pub broker: Arc<Broker>,
    pub metrics: Arc<Metrics>,
    pub(super) serving: Arc<AtomicBool>,
    pub(super) live: Arc<LiveConfig>,
    pub(super) reload_thread: Option<ReloadThread>,
    pub(super) copies: ListenerCopies,
    /// The gateway that has taken over.
    pub(super) successor: Successor,
    /// True when another gateway has the sockets.
    pub(super) replaced: watch::Receiver<bool>,
    pub(super) draining: watch::Sender<bool>,
    pub(super) workers: Vec<JoinHandle<()>>,
    pub(super) control: Option<ControlThread>,
    /// Ends after everything that writes audit events.
    pub(super) audit: Option<AuditThread>,
    /// Ends after the last request, and within a limited time.
    pub(super) traces: Option<TraceThread>,
    /// Ends last, and within a limited time: it writes the lines of the last requests.
    pub(super) log: Option<Arc<AccessLog>>,
}

impl Running {
    /// Activates another configuration, and returns the tables that have changed.
    pub fn reload(&self, config: Config) -> Result<Reloaded, StartError> {
        self.live.reload(config)
    }

    /// Requests a reload of the configuration file, and does not wait for it. The result is logged.
    pub fn reload_from_file(&self) {
        if let Some(reload_thread) = &self.reload_thread {
            reload_thread.request();
        }
    }

    /// Becomes true when another gateway has taken over. Then call [`Running::drain`].
    pub fn replaced(&self) -> watch::Receiver<bool> {
        self.replaced.clone()
    }

    /// Shuts down gracefully: becomes not ready, stops accepting, lets requests in flight end within `timeouts.drain`,
    /// and then ends everything else.
    pub fn drain(self) {
        drop(self);
    }

    /// Closes the store for the gateway that has taken over, when the requests in flight have ended, or after a short
    /// time. Waits longer for refreshes at providers: what they respond is in no other place.
    fn close_store(&mut self) {
        let deadline = Instant::now() + takeover::STORE_GRACE;
        let state = self.live.state.clone();
        while Instant::now() < deadline && (self.has_running_worker() || state.login_refresh.is_running()) {
            std::thread::sleep(WORKER_POLL);
        }
        // The next gateway repeats what has not ended, with a refresh token that the provider may have rotated.
        state.login_refresh.begin_no_more();
        block_on(state.login_refresh.finish(control::REFRESH_GRACE));
        // Dropping the thread delivers the remaining audit events.
        self.audit = None;
        block_on(control::write_confirmations(&state));
        state.store.close();
        tracing::info!("the store is closed; the next gateway opens it");
    }

    /// Tells the gateway that has taken over which proofs were used. This one accepts none any more.
    fn hand_over_proofs(&self) {
        let Some(stream) = self.successor.lock().take() else { return };
        let message = self.live.state.auth.proofs.hand_over().to_bytes();
        if let Err(error) = socket_handover::write_message(stream, &message) {
            tracing::warn!(%error, "the next gateway did not read which proofs were used");
        }
    }

    /// Follows the revocations of the gateway that has taken over, for the tokens of requests and streams in flight.
    /// Returns when there are none. Returns false if the revocations cannot be read.
    fn follow_store(&self) -> bool {
        let mut last_read = Instant::now();
        while self.has_running_worker() {
            match self.live.state.follow_store(&self.live.config()) {
                Ok(()) => last_read = Instant::now(),
                Err(error) if last_read.elapsed() > takeover::FOLLOW_LIMIT => {
                    let error = with_causes(&error);
                    tracing::error!(
                        error,
                        "cannot read the revocations of the next gateway; ending requests in flight"
                    );
                    return false;
                }
                // The store may be busy.
                Err(_) => {}
            }
            std::thread::sleep(takeover::FOLLOW_INTERVAL);
        }
        true
    }

    fn has_running_worker(&self) -> bool {
        self.workers.iter().any(|worker| !worker.is_finished())
    }
}

fn block_on(work: impl Future<Output = ()>) {
    if let Ok(runtime) = thread::runtime() {
        runtime.block_on(work);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.serving.store(false, Ordering::Release);
        // Before the workers close their sockets: closing the last copy of a socket closes its queue.
        *self.copies.lock() = None;
        let _ = self.draining.send(true);
        // Several gateways can have PostgreSQL open at once, so this one keeps it until it has drained.
        let is_shared = self.live.config().store.is_shared();
        let was_replaced = *self.replaced.borrow();
        if was_replaced && !is_shared {
            self.close_store();
        }
        self.hand_over_proofs();
        if was_replaced && !is_shared && !self.follow_store() {
            // Without their handles, the workers end with the process.
            self.workers.clear();
        }
        for worker in self.workers.drain(..) {
            // An error means that the worker panicked, which also ends it.
            let _ = worker.join();
        }
        self.reload_thread = None;
        // The admin listener ends late, because operators watch the drain with it.
        self.control = None;
        self.audit = None;
        // Before the log, which may be a pipe that no program reads: the next gateway needs the database.
        self.live.state.store.close();
        self.traces = None;
        self.log = None;
    }
}

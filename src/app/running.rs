//! A gateway that is running, and its orderly end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::audit::AuditThread;
use super::reload::LiveConfig;
use super::reload_triggers::Reloading;
use super::takeover::{self, ListenerCopies};
use super::{StartError, housekeeping, thread};
use crate::admin::Reloaded;
use crate::broker::Broker;
use crate::config::Config;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;

/// A gateway that is running. [`Running::drain`] ends it in order; so does dropping it.
pub struct Running {
    /// Where the listeners are, in the order of the configuration; port 0 has become a real one.
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
    pub broker: Arc<Broker>,
    pub metrics: Arc<Metrics>,
    pub(super) serving: Arc<AtomicBool>,
    pub(super) live: Arc<LiveConfig>,
    pub(super) reloading: Option<Reloading>,
    pub(super) copies: ListenerCopies,
    /// `true` once another gateway has the sockets.
    pub(super) replaced: watch::Receiver<bool>,
    pub(super) draining: watch::Sender<bool>,
    pub(super) workers: Vec<JoinHandle<()>>,
    pub(super) stop_control: watch::Sender<bool>,
    pub(super) control: Option<JoinHandle<()>>,
    /// After all who make events.
    pub(super) audit: Option<AuditThread>,
    /// Last: it writes the lines of the requests that the workers ended with.
    pub(super) log: Option<AccessLog>,
}

impl Running {
    /// Puts another configuration in force. Answers the parts that changed.
    pub fn reload(&self, config: Config) -> Result<Reloaded, StartError> {
        self.live.reload(config)
    }

    /// Has the file read again that it was started from. What comes of it is logged.
    pub fn reload_from_file(&self) {
        if let Some(reloading) = &self.reloading {
            reloading.ask();
        }
    }

    /// Turns `true` when another gateway has taken over. Then it is time to [`Running::drain`].
    pub fn replaced(&self) -> watch::Receiver<bool> {
        self.replaced.clone()
    }

    /// Lets the next gateway have the store, when the requests under way have ended, or soon.
    fn let_go_of_store(&mut self) {
        let deadline = Instant::now() + takeover::LAST_CALLS;
        while Instant::now() < deadline && self.workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Delivers what is left.
        self.audit = None;
        let foundation = &self.live.state;
        if let Ok(runtime) = thread::runtime() {
            runtime.block_on(housekeeping::flush_confirmations(foundation));
        }
        foundation.store.close();
        tracing::info!("the next gateway has the store");
    }

    /// What is still running stands on tokens that the next gateway may revoke. Returns when nothing is; `false` if it cannot be
    /// known what was revoked.
    fn follow_store(&self) -> bool {
        let mut known_at = Instant::now();
        while self.workers.iter().any(|worker| !worker.is_finished()) {
            match self.live.state.follow_store(&self.live.config()) {
                Ok(()) => known_at = Instant::now(),
                Err(error) if known_at.elapsed() > takeover::BLINDNESS => {
                    tracing::error!(error, "what the next gateway revokes cannot be read; what still runs is cut off");
                    return false;
                }
                // It may be busy.
                Err(_) => {}
            }
            std::thread::sleep(takeover::FOLLOW);
        }
        true
    }

    /// Says "not ready", stops accepting, lets every request end within `timeouts.drain`, and then everything else.
    pub fn drain(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.serving.store(false, Ordering::Release);
        // Before the workers close theirs: the last one closes the queue.
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.draining.send(true);
        if *self.replaced.borrow() {
            self.let_go_of_store();
            if !self.follow_store() {
                // They end with the process.
                self.workers.clear();
            }
        }
        for worker in self.workers.drain(..) {
            // A worker that panicked has ended, too.
            let _ = worker.join();
        }
        self.reloading = None;
        // The admin listener stays to the end: whoever watches the drain asks it.
        let _ = self.stop_control.send(true);
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
        self.audit = None;
        self.log = None;
    }
}

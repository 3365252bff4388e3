//! Wiring: from a [`Config`] to a running gateway, and to its orderly end.
//!
//! The order of the start is part of its safety: secrets, store, the whole revocation set, keys, addresses; the first
//! connection is accepted when all of that stands. Every thread and task has its owner here, who can stop it.

mod audit;
mod chores;
pub mod explain;
mod keys;
mod own_keys;
mod prepare;
mod reload;
mod reloading;
mod replaced;
mod secrets;
mod sockets;
mod upstreams;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sd_notify::NotifyState;
use tokio::sync::{Semaphore, watch};

use crate::access_log::AccessLog;
use crate::admin::{Admin, Reloaded};
use crate::broker::Broker;
use crate::clock::Clock;
use crate::config::{Config, StoreSettings};
use crate::crowd::Crowd;
use crate::hand_over;
use crate::ids::RequestIds;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::server::{self, Shared};
use crate::share::Share;
use crate::streams::Streams;
use crate::turns::Turns;
use crate::worker::Worker;

pub use secrets::add_root;
pub use sockets::Inherited;

use audit::AuditThread;
use prepare::Foundation;
use reload::{Live, Outcomes};
use reloading::Reloading;
use replaced::Copies;
use sockets::Sockets;

/// Why the gateway did not start. Nothing of it is left running.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(fault: String) -> Self {
        StartError(fault)
    }
}

/// A gateway that is running. [`Running::drain`] ends it in order; so does dropping it.
pub struct Running {
    /// Where the listeners are, in the order of the configuration; port 0 has become a real one.
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
    pub broker: Arc<Broker>,
    pub metrics: Arc<Metrics>,
    serving: Arc<AtomicBool>,
    live: Arc<Live>,
    reloading: Option<Reloading>,
    copies: Copies,
    /// `true` once another gateway has the sockets.
    replaced: watch::Receiver<bool>,
    draining: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    stop_control: watch::Sender<bool>,
    control: Option<JoinHandle<()>>,
    /// After all who make events.
    audit: Option<AuditThread>,
    /// Last: it writes the lines of the requests that the workers ended with.
    log: Option<AccessLog>,
}

/// Starts everything that `config` describes.
pub fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    start_with(config, clock, Inherited::None, None)
}

/// Asks the gateway that runs on this store to give way, if there is one. From then on it ends, so whatever can keep this one
/// from starting is looked at before.
pub fn take_over(config: &Config) -> Result<Inherited, StartError> {
    secrets::check(config)?;
    let path = replaced::path(&config.store);
    let asked = hand_over::ask(&path).map_err(|error| {
        format!(
            "{}: the gateway that runs does not give way: {error}; stop it, and start without --take-over",
            path.display()
        )
    })?;
    Ok(asked.map_or(Inherited::None, Inherited::Gateway))
}

/// As [`start`], with sockets that listen already, and reloading what is in `file`.
pub fn start_with(
    config: Config,
    clock: Arc<dyn Clock>,
    inherited: Inherited,
    file: Option<PathBuf>,
) -> Result<Running, StartError> {
    // Before anything is made.
    secrets::check_root_is_not_lost(&config.store)?;
    let admin_token = secrets::read_admin_token(&config.admin.token)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime can be made: {error}"))?;
    let patience = if matches!(inherited, Inherited::Gateway(_)) { replaced::PATIENCE } else { Duration::ZERO };
    let foundation = Arc::new(runtime.block_on(Foundation::lay(&config, clock.clone(), patience))?);
    let gateway = foundation.gateway(&config, clock.clone())?;
    let mut metrics = Metrics::new(config.workers);
    foundation.show(&mut metrics);
    let outcomes = Arc::new(Outcomes::new(&*clock));
    outcomes.show(&mut metrics);
    let delivery = audit::prepare(foundation.store.clone(), config.audit.target.clone(), &mut metrics)?;
    let metrics = Arc::new(metrics);
    let log = open_log(&config, &metrics)?;

    // From here on the outside sees us: at all addresses, or at none.
    let sockets = Sockets::open(&config, inherited)?;
    foundation.upstreams.put_in_force(&gateway.forwarder.upstreams);
    let (draining, drains) = watch::channel(false);
    let shared = Arc::new(Shared {
        gateway: ArcSwap::from_pointee(gateway),
        places: Arc::new(Semaphore::new(config.connections.connections.min(Semaphore::MAX_PERMITS))),
        crowd: Arc::new(Crowd::of_at_most(config.connections.connections_per_address)),
        settings: config.connections.clone(),
        draining: drains,
    });
    let mut workers = Vec::with_capacity(config.workers);
    for (number, listeners) in sockets.listeners.into_iter().enumerate() {
        let worker = Arc::new(Worker {
            number,
            request_ids: RequestIds::new(),
            metrics: metrics.worker(number),
            streams: Streams::new(foundation.grounds(), metrics.worker(number)),
            failures: Limiter::new(config.limits.bad_signatures),
            turns: Turns::new(),
            log: log.as_ref().map(|log| log.buffer(number)),
            share: Share::of(config.connections.requests, config.workers),
        });
        let spawned = server::spawn(worker, listeners, shared.clone());
        workers.push(spawned.map_err(|error| format!("worker {number} cannot start: {error}"))?);
    }

    let live = Arc::new(Live {
        foundation: foundation.clone(),
        shared: shared.clone(),
        certificates: sockets.certificates,
        admin_certificate: sockets.admin.tls.clone(),
        config: Mutex::new(config),
        clock: clock.clone(),
        outcomes,
    });
    let reloads = file.map(|file| (file, channel()));
    let serving = Arc::new(AtomicBool::new(true));
    let admin = Arc::new(Admin {
        broker: foundation.broker.clone(),
        upstreams: foundation.upstreams.current.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        token: admin_token,
        serving: serving.clone(),
        reloads: reloads.as_ref().map(|(_, (asking, _))| asking.clone()),
        request_ids: RequestIds::new(),
    });
    let (stop_control, stopped) = watch::channel(false);
    let (replacing, replaced) = watch::channel(false);
    let copies: Copies = Arc::new(Mutex::new(Some(sockets.copies)));
    let handing_over = offer_sockets(&live.config().store, copies.clone());
    let (kept, admin_socket, ticking) = (foundation.clone(), sockets.admin, clock.clone());
    let control = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            runtime.block_on(chores::run(kept, ticking, admin, admin_socket, (stopped, replacing), handing_over));
            // A look-up of a name that hangs must not hold up the end.
            runtime.shutdown_background();
        })
        .map_err(|error| format!("the control thread cannot start: {error}"))?;
    let audit = delivery.map(audit::start).transpose()?;
    let reloading = reloads.map(|(file, asking)| Reloading::start(live.clone(), file, asking)).transpose()?;
    Ok(Running {
        addresses: sockets.addresses,
        admin_address: sockets.admin_address,
        broker: foundation.broker.clone(),
        metrics,
        serving,
        live,
        reloading,
        copies,
        replaced,
        draining,
        workers,
        stop_control,
        control: Some(control),
        audit,
        log,
    })
}

fn open_log(config: &Config, metrics: &Metrics) -> Result<Option<AccessLog>, String> {
    let workers: Vec<_> = (0..config.workers).map(|number| metrics.worker(number)).collect();
    AccessLog::open(&config.access_log, &workers).map_err(|error| format!("the access log cannot be opened: {error}"))
}

/// If it is there to be told.
pub fn tell_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// Without a place to ask at, a gateway serves as well; it is replaced by ending it first.
fn offer_sockets(store: &StoreSettings, copies: Copies) -> impl Future<Output = ()> + use<> {
    let path = replaced::path(store);
    let offering = replaced::listen(&path);
    async move {
        match offering {
            Ok(offering) => replaced::hand_over_when_asked(offering, copies).await,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "no other gateway can take over from this one");
                std::future::pending().await
            }
        }
    }
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
        let deadline = Instant::now() + replaced::LAST_CALLS;
        while Instant::now() < deadline && self.workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Delivers what is left.
        self.audit = None;
        let foundation = &self.live.foundation;
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            runtime.block_on(chores::flush_confirmations(foundation));
        }
        foundation.store.close();
        tracing::info!("the next gateway has the store");
    }

    /// What is still running stands on tokens that the next gateway may revoke. Returns when nothing is; `false` if it cannot be
    /// known what was revoked.
    fn follow_store(&self) -> bool {
        let mut known_at = Instant::now();
        while self.workers.iter().any(|worker| !worker.is_finished()) {
            match self.live.foundation.follow_store(&self.live.config()) {
                Ok(()) => known_at = Instant::now(),
                Err(error) if known_at.elapsed() > replaced::BLINDNESS => {
                    tracing::error!(error, "what the next gateway revokes cannot be read; what still runs is cut off");
                    return false;
                }
                // It may be busy.
                Err(_) => {}
            }
            std::thread::sleep(replaced::FOLLOW);
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

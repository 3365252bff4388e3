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
mod secrets;
mod sockets;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use crate::access_log::AccessLog;
use crate::admin::Admin;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::Worker;
use crate::ids::RequestIds;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::server::{self, Shared};
use crate::tls::ServerSide;

pub use secrets::add_root;

use audit::AuditThread;
use prepare::Foundation;
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
    foundation: Arc<Foundation>,
    shared: Arc<Shared>,
    certificates: Vec<Option<Arc<ArcSwap<ServerSide>>>>,
    /// What is in force, for telling what a reload changes.
    config: Mutex<Config>,
    clock: Arc<dyn Clock>,
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
    // Before anything is made.
    secrets::check_root_is_not_lost(&config.store)?;
    let admin_token = secrets::read_admin_token(&config.admin.token)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime can be made: {error}"))?;
    let foundation = Arc::new(runtime.block_on(Foundation::lay(&config, clock.clone()))?);
    let gateway = foundation.gateway(&config, clock.clone())?;
    let mut metrics = Metrics::new(config.workers);
    foundation.show(&mut metrics);
    let delivery = audit::prepare(foundation.store.clone(), config.audit.target.clone(), &mut metrics)?;
    let metrics = Arc::new(metrics);
    let log = open_log(&config, &metrics)?;

    // From here on the outside sees us: at all addresses, or at none.
    let sockets = Sockets::bind(&config)?;
    let (draining, drains) = watch::channel(false);
    let shared = Arc::new(Shared {
        gateway: ArcSwap::from_pointee(gateway),
        places: Arc::new(Semaphore::new(config.connections.connections.min(Semaphore::MAX_PERMITS))),
        settings: config.connections.clone(),
        draining: drains,
    });
    let mut workers = Vec::with_capacity(config.workers);
    for (number, listeners) in sockets.listeners.into_iter().enumerate() {
        let worker = Arc::new(Worker {
            number,
            request_ids: RequestIds::new(),
            metrics: metrics.worker(number),
            failures: Limiter::new(config.limits.bad_signatures),
            log: log.as_ref().map(|log| log.buffer(number)),
        });
        let spawned = server::spawn(worker, listeners, shared.clone());
        workers.push(spawned.map_err(|error| format!("worker {number} cannot start: {error}"))?);
    }

    let serving = Arc::new(AtomicBool::new(true));
    let admin = Arc::new(Admin {
        broker: foundation.broker.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        token: admin_token,
        serving: serving.clone(),
        request_ids: RequestIds::new(),
    });
    let (stop_control, stopped) = watch::channel(false);
    let (kept, admin_socket, ticking) = (foundation.clone(), sockets.admin, clock.clone());
    let control = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            runtime.block_on(chores::run(kept, ticking, admin, admin_socket, stopped));
            // A look-up of a name that hangs must not hold up the end.
            runtime.shutdown_background();
        })
        .map_err(|error| format!("the control thread cannot start: {error}"))?;
    let audit = delivery.map(audit::start).transpose()?;
    Ok(Running {
        addresses: sockets.addresses,
        admin_address: sockets.admin_address,
        broker: foundation.broker.clone(),
        metrics,
        serving,
        foundation,
        shared,
        certificates: sockets.certificates,
        config: Mutex::new(config),
        clock,
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

impl Running {
    /// Says "not ready", stops accepting, lets every request end within `timeouts.drain`, and then everything else.
    pub fn drain(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.serving.store(false, Ordering::Release);
        let _ = self.draining.send(true);
        for worker in self.workers.drain(..) {
            // A worker that panicked has ended, too.
            let _ = worker.join();
        }
        // The admin listener stays to the end: whoever watches the drain asks it.
        let _ = self.stop_control.send(true);
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
        self.audit = None;
        self.log = None;
    }
}

//! Wiring: from a [`Config`] to a running gateway, and to its orderly end.
//!
//! The order of the start is part of its safety: secrets, store, the whole revocation set, keys, addresses; the first
//! connection is accepted when all of that stands. Every thread and task has its owner here, who can stop it.

mod audit;
pub mod explain;
mod housekeeping;
mod keys;
mod own_keys;
mod prepare;
mod reload;
mod reload_triggers;
mod running;
mod secrets;
mod sockets;
mod takeover;
mod thread;
mod upstreams;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use sd_notify::NotifyState;
use tokio::sync::{Semaphore, watch};

use crate::admin::Admin;
use crate::auth::signature_queue::SignatureQueue;
use crate::config::{Config, StoreSettings};
use crate::gateway::Gateway;
use crate::gateway::streams::Streams;
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::limiter::Limiter;
use crate::limits::penalty::PenaltyBox;
use crate::limits::per_address::PerAddressLimit;
use crate::limits::rate_limit::RateLimits;
use crate::protocols::socket_handover;
use crate::server::{self, Listener, RetryDelay, Shared};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;

pub use running::Running;
pub use secrets::add_root;
pub use sockets::Inherited;

use prepare::SharedState;
use reload::{LiveConfig, Outcomes};
use reload_triggers::Reloading;
use sockets::Sockets;
use takeover::{ListenerCopies, TakeoverOffer};

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

/// Starts everything that `config` describes.
pub fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    start_with(config, clock, Inherited::None, None)
}

/// Asks the gateway that runs on this store to give way, if there is one. From then on it ends, so whatever can keep this one
/// from starting is looked at before.
pub fn take_over(config: &Config) -> Result<Inherited, StartError> {
    secrets::check(config)?;
    let path = takeover::path(&config.store);
    let asked = socket_handover::request(&path).map_err(|error| {
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
    let runtime = thread::runtime()?;
    let patience = if matches!(inherited, Inherited::Gateway(_)) { takeover::PATIENCE } else { Duration::ZERO };
    let state = Arc::new(runtime.block_on(SharedState::build(&config, clock.clone(), patience))?);
    let gateway = state.gateway(&config, clock.clone(), &RateLimits::default())?;
    let mut metrics = Metrics::new(config.workers);
    state.register_metrics(&mut metrics);
    let outcomes = Arc::new(Outcomes::new(&*clock));
    outcomes.register_metrics(&mut metrics);
    let delivery = audit::prepare(state.store.clone(), config.audit.target.clone(), &mut metrics)?;
    let log = open_log(&config, &metrics)?;

    // From here on the outside sees us: at all addresses, or at none.
    let sockets = Sockets::open(&config, inherited)?;
    sockets.register_metrics(&mut metrics);
    let metrics = Arc::new(metrics);
    state.put_in_force(&gateway);
    let (draining, drains) = watch::channel(false);
    let shared = Arc::new(share(&config, gateway, drains));
    let workers = start_workers(&config, sockets.listeners, (&state, &metrics, log.as_ref()), &shared)?;
    let live = Arc::new(LiveConfig {
        state: state.clone(),
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
        broker: state.broker.clone(),
        upstreams: state.upstreams.current.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        token: admin_token,
        serving: serving.clone(),
        reloads: reloads.as_ref().map(|(_, (asking, _))| asking.clone()),
        request_ids: RequestIds::new(),
    });
    let (stop_control, stopped) = watch::channel(false);
    let (replacing, replaced) = watch::channel(false);
    let copies: ListenerCopies = Arc::new(Mutex::new(Some(sockets.copies)));
    let handing_over = offer_sockets(&live.config().store, copies.clone());
    let (kept, admin_socket, ticking) = (state.clone(), sockets.admin, clock.clone());
    let control = thread::start("control", runtime, move || {
        housekeeping::run(kept, ticking, admin, admin_socket, (stopped, replacing), handing_over)
    })?;
    let audit = delivery.map(audit::start).transpose()?;
    let reloading = reloads.map(|(file, asking)| Reloading::start(live.clone(), file, asking)).transpose()?;
    Ok(Running {
        addresses: sockets.addresses,
        admin_address: sockets.admin_address,
        broker: state.broker.clone(),
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

/// What the connections of all workers share.
fn share(config: &Config, gateway: Gateway, draining: watch::Receiver<bool>) -> Shared {
    let settings = config.connections.clone();
    Shared {
        gateway: ArcSwap::from_pointee(gateway),
        connection_slots: Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS))),
        per_address: Arc::new(PerAddressLimit::new(settings.connections_per_address)),
        penalties: PenaltyBox::new(settings.penalty),
        retry_delay: RetryDelay::new(&config.connections),
        settings,
        draining,
    }
}

fn start_workers(
    config: &Config,
    listeners: Vec<Vec<Listener>>,
    (state, metrics, log): (&SharedState, &Metrics, Option<&AccessLog>),
    shared: &Arc<Shared>,
) -> Result<Vec<JoinHandle<()>>, String> {
    // Each checks one signature at a time.
    let bad_signatures = Arc::new(Limiter::new(config.limits.bad_signatures).with_overdraft(config.workers));
    let start = |(number, listeners)| {
        let worker = Worker {
            number,
            request_ids: RequestIds::new(),
            metrics: metrics.worker(number),
            streams: Streams::new(state.token_checks(), metrics.worker(number)),
            bad_signatures: bad_signatures.clone(),
            signature_queue: SignatureQueue::new(),
            log: log.map(|log| log.buffer(number)),
            concurrency: ConcurrencyLimit::new(
                config.connections.concurrent_requests,
                config.connections.reserve_percent,
                config.workers,
            ),
        };
        let spawned = server::spawn(Arc::new(worker), listeners, shared.clone());
        spawned.map_err(|error| format!("worker {number} cannot start: {error}"))
    };
    listeners.into_iter().enumerate().map(start).collect()
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
fn offer_sockets(store: &StoreSettings, copies: ListenerCopies) -> impl Future<Output = ()> + use<> {
    let path = takeover::path(store);
    let offer = TakeoverOffer::at(path.clone());
    async move {
        match offer {
            Ok(offer) => takeover::hand_over_when_asked(offer, copies).await,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "no other gateway can take over from this one");
                std::future::pending().await
            }
        }
    }
}

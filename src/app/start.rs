//! The start of a gateway.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::audit;
use super::control::{Control, ControlThread};
use super::error::StartError;
use super::live_explain::LiveExplainer;
use super::reload::LiveConfig;
use super::reload_metrics::ReloadMetrics;
use super::reload_thread::{ReloadQueue, ReloadThread};
use super::root_secrets;
use super::running::Running;
use super::secrets;
use super::shared_state::SharedState;
use super::sockets::{self, Inherited, Sockets};
use super::takeover::{self, ListenerCopies, Successor};
use super::thread;
use super::traces;
use super::workers::{self, Workers};
use crate::admin::{
    Admin, AdminConnections, KnownClients, ListenerTls, Operators, Readiness, ReloadRequest, Sessions, StatsStreams,
    WrongTokens,
};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::limits::rate_limit::RateLimits;
use crate::protocols::socket_handover;
use crate::telemetry::access_log::{AccessLog, AccessLogTarget};
use crate::telemetry::audit_log::{self, Delivery};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::spans::Tracer;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;
use crate::types::secret::Secret;

/// Starts everything that `config` describes.
pub fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    start_with(config, clock, Inherited::None, None)
}

/// Takes over the sockets of the gateway that runs on this store, if there is one. That gateway then drains, so this
/// first checks what can stop the start of this one: it binds the addresses that the other one does not have, and opens
/// the logs.
pub fn take_over(config: &Config) -> Result<Inherited, StartError> {
    root_secrets::check(config)?;
    let socket = takeover::socket_path(&config.store);
    let failed = |source| StartError::TakeOver { socket: socket.clone(), source };
    let Some(mut offered) = socket_handover::request(&socket).map_err(failed)? else { return Ok(Inherited::None) };
    let mut sockets = std::mem::take(&mut offered.sockets);
    sockets.extend(sockets::bind_others(config, &sockets)?);
    AccessLog::check(&config.access_log.target).map_err(|error| access_log_error(config, error))?;
    audit_log::check(&config.audit.target).map_err(|error| StartError::Audit(error.into()))?;
    let stream = offered.confirm().map_err(failed)?;
    Ok(Inherited::Gateway(sockets, stream))
}

/// As [`start`], with sockets that listen already, and with reloads from `file`.
pub fn start_with(
    config: Config,
    clock: Arc<dyn Clock>,
    inherited: Inherited,
    file: Option<PathBuf>,
) -> Result<Running, StartError> {
    // First, because everything after it creates files.
    if let Some(warning) = root_secrets::check_is_not_lost(&config.store)? {
        tracing::warn!("{warning}");
    }
    let admin_token = secrets::read_admin_token(&config.admin.token)?;
    let runtime = thread::runtime()?;
    let mut prepared = prepare(&config, clock, &inherited, &runtime)?;
    // From here on clients can connect: to all addresses or to none.
    let sockets = Sockets::open(&config, &prepared.state.tickets, &prepared.state.acme.certificates, inherited)?;
    sockets.register_metrics(&mut prepared.metrics);
    run(config, prepared, sockets, (runtime, admin_token), file)
}

/// Starts the threads. `control`: the runtime of the control thread, and the admin token.
fn run(
    config: Config,
    prepared: Prepared,
    sockets: Sockets,
    control: (Runtime, Secret),
    file: Option<PathBuf>,
) -> Result<Running, StartError> {
    let Prepared { state, gateway, metrics, readiness, reload_metrics, delivery, log, tracer } = prepared;
    let clock = state.clock.clone();
    let metrics = Arc::new(metrics);
    state.activate(&gateway);
    let (draining, drains) = watch::channel(false);
    let shared = Arc::new(workers::shared(&config, gateway, drains));
    let max_field = config.access_log.max_field_size;
    let rejections = Arc::new(RecentRejections::new(config.workers, config.admin.recent_rejections, max_field));
    let workers = Workers {
        config: &config,
        state: &state,
        metrics: &metrics,
        log: log.as_deref(),
        tracer: tracer.as_ref(),
        rejections: &rejections,
        shared: &shared,
    };
    let listeners = sockets.with_certificates();
    let workers = workers.start(sockets.listeners)?;
    let receiver = config.trace.as_ref().map(|trace| trace.receiver.clone());
    let copies: ListenerCopies = Arc::new(Mutex::new(Some(sockets.copies)));
    let successor = Successor::default();
    let hand_over = takeover::hand_over(&config.store, copies.clone(), successor.clone());
    let is_shared = config.store.is_shared();
    let queue = ReloadQueue::new();
    let reloads = file.is_some().then(|| queue.sender.clone());
    let (runtime, token) = control;
    let connections = Arc::new(AdminConnections::new(&config.admin, metrics.worker(config.workers)));
    let live = Arc::new(LiveConfig {
        state: state.clone(),
        shared,
        certificates: sockets.certificates,
        admin_certificate: sockets.admin.tls.clone(),
        config: ArcSwap::from_pointee(config),
        file: file.as_deref().and_then(|file| std::path::absolute(file).ok()),
        replacing: Mutex::default(),
        clock,
        metrics: reload_metrics,
        log: log.as_ref().map(Arc::downgrade),
        rejections: rejections.clone(),
        tracer: tracer.clone(),
    });
    let admin = Arc::new(admin(&live, token, &metrics, readiness, rejections, listeners, reloads));
    let serving = admin.serving.clone();
    let admin_socket = sockets.admin.local.path().to_owned();
    let control = Control { live: live.clone(), admin, connections, socket: sockets.admin, is_shared };
    let control = ControlThread::start(runtime, control, hand_over)?;
    let audit = delivery.map(audit::start).transpose()?;
    let traces = tracer.as_ref().zip(receiver).map(|(tracer, receiver)| traces::start(tracer, receiver)).transpose()?;
    let reload_thread = file.map(|file| ReloadThread::start(live.clone(), file, queue)).transpose()?;
    Ok(Running {
        addresses: sockets.addresses,
        admin_address: sockets.admin_address,
        admin_socket,
        broker: state.broker.clone(),
        metrics,
        serving,
        live,
        reload_thread,
        copies,
        successor,
        replaced: control.replaced.clone(),
        draining,
        workers,
        control: Some(control),
        audit,
        traces,
        log,
    })
}

/// What the calls of the admin API work on. `reloads`: `None` for a gateway that was not started from a file.
fn admin(
    live: &Arc<LiveConfig>,
    token: Secret,
    metrics: &Arc<Metrics>,
    readiness: Arc<Readiness>,
    rejections: Arc<RecentRejections>,
    listeners: Vec<ListenerTls>,
    reloads: Option<Sender<ReloadRequest>>,
) -> Admin {
    let config = live.config();
    let state = &live.state;
    let in_force = live.clone();
    let of_clients = live.clone();
    Admin {
        broker: state.broker.clone(),
        providers: state.providers.clone(),
        client_keys: state.client_keys.clone(),
        upstreams: state.upstreams.current.clone(),
        metrics: metrics.clone(),
        rejections,
        explainer: Box::new(LiveExplainer(live.clone())),
        snapshots: Arc::new(state.snapshots(metrics.clone())),
        stats_streams: StatsStreams::new(config.admin.streams),
        listeners,
        known_clients: Box::new(move || known_clients(&of_clients)),
        configuration: Box::new(move || configuration(&in_force)),
        clock: state.clock.clone(),
        operators: Operators::new(&token, &config.admin.operators),
        sessions: Arc::new(Sessions::new(config.admin.session_lifetime)),
        wrong_tokens: WrongTokens::new(config.admin.wrong_tokens),
        hosts: config.admin.hosts.clone(),
        page: config.admin.page,
        readiness,
        counters: metrics.worker(config.workers),
        serving: Arc::new(AtomicBool::new(true)),
        reloads,
        request_ids: RequestIds::new(),
    }
}

fn known_clients(live: &LiveConfig) -> KnownClients {
    let config = live.config();
    KnownClients {
        registered: config.oauth.clients.iter().map(|client| client.client_id.clone()).collect(),
        documents: live.state.authorization.documents.names(),
        denied: config.oauth.denied.clone(),
    }
}

/// The settings in force, and the file that a reload reads.
fn configuration(live: &LiveConfig) -> Value {
    let mut settings = live.config().values.json();
    if let Some(file) = &live.file {
        settings["file"] = file.display().to_string().into();
    }
    settings
}

/// What is ready before a client can connect.
struct Prepared {
    state: Arc<SharedState>,
    gateway: Gateway,
    metrics: Metrics,
    readiness: Arc<Readiness>,
    reload_metrics: Arc<ReloadMetrics>,
    delivery: Option<Delivery>,
    log: Option<Arc<AccessLog>>,
    tracer: Option<Arc<Tracer>>,
}

fn prepare(
    config: &Config,
    clock: Arc<dyn Clock>,
    inherited: &Inherited,
    runtime: &Runtime,
) -> Result<Prepared, StartError> {
    let predecessor = if let Inherited::Gateway(_, stream) = inherited { Some(stream) } else { None };
    let state = runtime.block_on(SharedState::build(config, clock, predecessor))?;
    let gateway = state.gateway(config, &RateLimits::default())?;
    // One more for the control thread, which serves the admin listener.
    let mut metrics = Metrics::new(config.workers + 1);
    state.register_metrics(&mut metrics);
    let reload_metrics = Arc::new(ReloadMetrics::new(&*state.clock));
    reload_metrics.register(&mut metrics);
    let readiness = Arc::new(Readiness::default());
    readiness.register(&mut metrics);
    let delivery = audit::prepare(state.store.clone(), config.audit.target.clone(), &mut metrics)?;
    let tracer = traces::prepare(config.trace.as_ref(), config.access_log.max_field_size, &mut metrics);
    let log = open_log(config, &metrics)?;
    Ok(Prepared { state: Arc::new(state), gateway, metrics, readiness, reload_metrics, delivery, log, tracer })
}

fn open_log(config: &Config, metrics: &Metrics) -> Result<Option<Arc<AccessLog>>, StartError> {
    let workers: Vec<_> = (0..config.workers).map(|number| metrics.worker(number)).collect();
    let log = AccessLog::open(&config.access_log, &workers).map_err(|error| access_log_error(config, error))?;
    Ok(log.map(Arc::new))
}

fn access_log_error(config: &Config, source: io::Error) -> StartError {
    let target = match &config.access_log.target {
        AccessLogTarget::File(file) => file.display().to_string(),
        AccessLogTarget::Stdout | AccessLogTarget::Off => "standard output".to_owned(),
    };
    StartError::AccessLog { target, source }
}

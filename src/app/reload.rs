//! The changes of a reload in a running gateway. [`reload_thread`](super::reload_thread) decides when.
//!
//! A reload replaces routes, rates, upstreams, identity and login headers, OAuth endpoints, CORS, trusted proxies,
//! forward auth, token exchanges, the other issuers with their keys, certificates, the signing key, and the limits,
//! timeouts and throttles that are only read. Requests in flight end under the settings that they started with, and
//! connections keep their timeouts. The state of servers and the counts of unchanged rates stay. The token cache
//! starts with the known API keys only, because its entries depend on the old configuration.
//!
//! A reload reads everything before it replaces anything, so an invalid file changes nothing. All other settings
//! (addresses, store, the gateway's own tokens, limits that all connections share) require a restart, which it reports.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::acme;
use super::error::StartError;
use super::own_keys;
use super::provider_changes;
use super::reload_metrics::ReloadMetrics;
use super::reload_trials::Trials;
use super::shared_state::SharedState;
use crate::admin::Reloaded;
use crate::config::{Change, Config, Limits};
use crate::gateway::Gateway;
use crate::gateway::endpoints::ResourceServer;
use crate::protocols::tls::{self, ServerTls, ServerTlsSettings, TicketSource};
use crate::server::acme::AcmeSettings;
use crate::server::{ListenerSettings, Shared};
use crate::telemetry::access_log::{AccessLog, AccessLogSettings};
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::spans::Tracer;
use crate::tokens::jwt::sign::SigningKey;
use crate::types::clock::Clock;
use crate::types::per_worker::{PaddedArc, PerWorker};

/// The active configuration, and what a reload replaces.
pub(super) struct LiveConfig {
    pub(super) state: Arc<SharedState>,
    pub(super) shared: Arc<Shared>,
    /// `None`: the access log is off. The gateway that ends drops it, and writes its last lines.
    pub(super) log: Option<Weak<AccessLog>>,
    pub(super) rejections: Arc<RecentRejections>,
    /// `None`: no spans are sent.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// The certificates of each listener. `None` for cleartext.
    pub(super) certificates: Vec<Option<Arc<ArcSwap<ServerTls>>>>,
    pub(super) admin_certificate: Option<Arc<ArcSwap<ServerTls>>>,
    pub(super) config: ArcSwap<Config>,
    /// The file that a reload reads. `None` for a gateway that was not started from a file.
    pub(super) file: Option<PathBuf>,
    /// Held by what replaces something. A reload holds it for seconds, while it waits for answers of other servers.
    pub(super) replacing: Mutex<()>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<ReloadMetrics>,
}

impl LiveConfig {
    /// Activates `config`, and returns what has changed.
    pub(super) fn reload(&self, config: Config) -> Result<Reloaded, StartError> {
        let _replacing = self.replacing.lock();
        let current = self.config();
        let (next, mut reloaded) = plan(&current, config);
        let certificates = self.read_certificates(&next)?;
        self.add_renewed(&current, &next, &certificates, &mut reloaded);
        let signing_key = self.signing_key(&next, &mut reloaded)?;
        let previous = self.shared.gateway.load();
        let gateway = self.state.gateway(&next, &previous.rates)?;
        let trials = Trials::of(&current, &next, &gateway);
        add_upstreams(&previous, &gateway, &mut reloaded);
        reloaded.warnings.extend(self.state.reload_keys(&next)?);
        self.state.activate(&gateway);
        self.shared.settings.store(Arc::new(next.connections.clone()));
        self.state.broker.throttle.reload(&next.throttle);
        if let Some(log) = self.log.as_ref().and_then(Weak::upgrade) {
            log.reload(&next.access_log);
        }
        self.rejections.set_max_field(next.access_log.max_field_size);
        self.tracer.iter().for_each(|tracer| tracer.set_max_field(next.access_log.max_field_size));
        self.replace_certificates(certificates);
        self.replace_signing_key(signing_key);
        self.state.acme.set_wanted(acme::wanted(&next));
        self.shared.gateway.store(Arc::new(PerWorker::new(PaddedArc::new(gateway), next.workers)));
        self.config.store(Arc::new(next));
        reloaded.warnings.extend(trials.run(&self.state));
        Ok(reloaded)
    }

    /// What [`LiveConfig::reload`] would change, and whether it would fail. Changes nothing.
    pub(super) fn dry_run(&self, config: Config) -> Result<Reloaded, StartError> {
        let current = self.config();
        let (next, mut reloaded) = plan(&current, config);
        let certificates = self.read_certificates(&next)?;
        self.add_renewed(&current, &next, &certificates, &mut reloaded);
        self.signing_key(&next, &mut reloaded)?;
        let active = self.shared.gateway.load();
        add_upstreams(&active, &self.state.gateway(&next, &active.rates)?, &mut reloaded);
        self.state.check_keys(&next)?;
        Ok(reloaded)
    }

    /// Reads the files of the active certificates again, and nothing else. Returns warnings about what was read.
    pub(super) fn reload_certificates(&self) -> Result<Vec<String>, StartError> {
        let _replacing = self.replacing.lock();
        let current = self.config();
        let certificates = self.read_certificates(&current)?;
        let numbered = certificates.iter().enumerate();
        let warnings = numbered.filter_map(|(number, side)| Some(self.warnings(number, side.as_deref()?)));
        let warnings = warnings.flatten().collect();
        self.replace_certificates(certificates);
        Ok(warnings)
    }

    /// Activates what an ACME server has issued. Listeners without a name for it stay as they are. Returns warnings:
    /// the other files of these listeners are read again, too.
    pub(super) fn activate_acme(&self) -> Result<Vec<String>, StartError> {
        let _replacing = self.replacing.lock();
        let current = self.config();
        let mut warnings = Vec::new();
        for ((number, settings), active) in current.listeners.iter().enumerate().zip(&self.certificates) {
            if let Some(active) = active
                && settings.tls.acme_names().next().is_some()
                && let Some(side) = self.read_listener(settings, number)?
            {
                warnings.extend(self.warnings(number, &side));
                active.store(side);
            }
        }
        tls::note_reload();
        Ok(warnings)
    }

    /// Reads the file of the signing key again, and nothing else.
    pub(super) fn reload_signing_key(&self) -> Result<(), StartError> {
        let _replacing = self.replacing.lock();
        self.replace_signing_key(own_keys::signing_key(&self.config().tokens)?);
        Ok(())
    }

    fn replace_signing_key(&self, key: Option<SigningKey>) {
        if let Some(key) = key {
            self.state.broker.own_keys.replace_file_key(key);
        }
    }

    /// The key in `tokens.signing_key_file`. Reports if it is another one.
    fn signing_key(&self, next: &Config, reloaded: &mut Reloaded) -> Result<Option<SigningKey>, StartError> {
        let key = own_keys::signing_key(&next.tokens)?;
        let current = self.state.broker.own_keys.in_file();
        if key.as_ref().map(|key| &key.kid) != current.as_ref().map(|key| &key.kid) {
            reloaded.changes.push(Change::content("tokens.signing_key_file").json());
            add_table("tokens", reloaded);
        }
        Ok(key)
    }

    /// Never waits for a reload.
    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Adds the certificates of which the files have another content.
    fn add_renewed(&self, current: &Config, next: &Config, read: &[Option<Arc<ServerTls>>], reloaded: &mut Reloaded) {
        let tables = (0..current.listeners.len()).map(|number| (format!("listener[{number}].tls"), "listener"));
        let tables = tables.chain([("admin.tls".to_owned(), "admin")]);
        let settings = current
            .listeners
            .iter()
            .zip(&next.listeners)
            .map(|(current, next)| (&current.tls, &current.clients) == (&next.tls, &next.clients));
        let active = self.certificates.iter().chain([&self.admin_certificate]);
        for (((key, table), is_same_file), (active, read)) in tables.zip(settings.chain([true])).zip(active.zip(read)) {
            let (Some(active), Some(read)) = (active, read) else { continue };
            if is_same_file && !active.load().has_certificates_of(read) {
                reloaded.changes.push(Change::content(key).json());
                add_table(table, reloaded);
            } else if is_same_file && !active.load().has_client_files_of(read) {
                reloaded.changes.push(Change::content(key.replace(".tls", ".client_ca")).json());
                add_table(table, reloaded);
            }
        }
    }

    /// The certificates of the listeners, and of the admin listener last.
    fn read_certificates(&self, config: &Config) -> Result<Vec<Option<Arc<ServerTls>>>, StartError> {
        let listeners = config.listeners.iter().enumerate();
        let listeners = listeners.map(|(number, listener)| self.read_listener(listener, number));
        let number = config.listeners.len();
        let admin = tls::server_tls(&config.admin.tls, None, &TicketSource::Process, number, &Arc::default(), None);
        listeners.chain([admin.map_err(|error| StartError::Certificate(error.into()))]).collect()
    }

    fn read_listener(&self, listener: &ListenerSettings, number: usize) -> Result<Option<Arc<ServerTls>>, StartError> {
        let active = self.certificates.get(number).and_then(Option::as_ref).map(|active| active.load_full());
        let clients = listener.clients.as_ref();
        let acme = &self.state.acme.certificates;
        let side = tls::server_tls(&listener.tls, clients, &self.state.tickets, number, acme, active.as_deref());
        side.map_err(|error| StartError::Certificate(error.into()))
    }

    /// What a check of the files would warn of, for a reload without one. `number`: of the listener; the admin listener
    /// is the last.
    fn warnings(&self, number: usize, side: &ServerTls) -> Vec<String> {
        let is_admin = number == self.certificates.len();
        let table = if is_admin { "admin".to_owned() } else { format!("listener[{number}]") };
        let problems = side.problems(self.clock.now()).into_iter();
        problems.map(|(key, problem)| format!("{table}.{key}: {problem}")).collect()
    }

    fn replace_certificates(&self, certificates: Vec<Option<Arc<ServerTls>>>) {
        let active = self.certificates.iter().chain([&self.admin_certificate]);
        for (active, certificate) in active.zip(certificates) {
            if let (Some(active), Some(certificate)) = (active, certificate) {
                active.store(certificate);
            }
        }
        tls::note_reload();
    }
}

/// The configuration after a reload, and what it changes. What requires a restart stays.
fn plan(current: &Config, config: Config) -> (Config, Reloaded) {
    let requires_restart = needs_restart(current, &config);
    let listeners_change = requires_restart.contains(&"listener");
    let mut changes = current.values.changes(&config.values, listeners_change);
    changes.extend(new_secrets(current, &config, &changes));
    changes.extend(new_contents(&requires_restart, &changes));
    let changes = changes.iter().map(Change::json).collect();
    let next = Config {
        files: config.files,
        values: current.values.reloaded(&config.values, listeners_change),
        include: config.include,
        watch: config.watch,
        routes: config.routes,
        rates: config.rates,
        upstreams: config.upstreams,
        token_exchanges: config.token_exchanges,
        identity: config.identity,
        login: config.login,
        oauth: config.oauth,
        sign_in_path: config.sign_in_path,
        sign_in: config.sign_in,
        cors: config.cors,
        https: config.https,
        forwarding: config.forwarding,
        forward_auth: config.forward_auth,
        throttle: config.throttle,
        connections: current.connections.reloaded(&config.connections),
        access_log: AccessLogSettings { target: current.access_log.target.clone(), ..config.access_log },
        limits: Limits {
            token_cache_size: config.limits.token_cache_size,
            used_proofs: config.limits.used_proofs,
            ..current.limits
        },
        issuers: config.issuers,
        providers: config.providers,
        acme: Arc::new(AcmeSettings { pace: current.acme.pace, ..(*config.acme).clone() }),
        listeners: if listeners_change { current.listeners.clone() } else { config.listeners },
        ..current.clone()
    };
    let active = changed(current, &next);
    let warnings = provider_changes::warnings(current, &next);
    (next, Reloaded { active, requires_restart, changes, warnings })
}

/// Adds the upstreams of which the files have another content.
fn add_upstreams(active: &Gateway, next: &Gateway, reloaded: &mut Reloaded) {
    let active: HashMap<_, _> =
        active.forwarder.upstreams.iter().map(|upstream| (&upstream.settings.name, upstream)).collect();
    for (number, next) in next.forwarder.upstreams.iter().enumerate() {
        let active = active.get(&next.settings.name).filter(|active| !Arc::ptr_eq(active, next));
        if active.is_some_and(|active| active.settings == next.settings) {
            reloaded.changes.push(Change::content(format!("upstream[{number}]")).json());
            add_table("upstream", reloaded);
        }
    }
}

fn add_table(table: &'static str, reloaded: &mut Reloaded) {
    if !reloaded.active.contains(&table) {
        reloaded.active.push(table);
    }
}

/// The resource servers with a new secret in the same file.
fn new_secrets(current: &Config, config: &Config, changes: &[Change]) -> Vec<Change> {
    let others = &current.oauth.resource_servers;
    let is_new = |server: &ResourceServer| {
        others.iter().any(|other| other.client_id == server.client_id) && !others.contains(server)
    };
    let servers = config.oauth.resource_servers.iter().enumerate().filter(|(_, server)| is_new(server));
    let keys = servers.map(|(number, _)| format!("oauth.resource_server[{number}].secret_file"));
    keys.filter(|key| !changes.iter().any(|change| change.key == *key)).map(Change::content).collect()
}

/// The tables that require a restart although none of their keys does: a file that one of them names has another
/// content.
fn new_contents(tables: &[&'static str], changes: &[Change]) -> Vec<Change> {
    let has_key = |table: &str| changes.iter().any(|change| change.requires_restart && change.table() == table);
    // `timeouts and limits` are two tables, which name no file.
    let tables = tables.iter().filter(|table| !table.contains(' ') && !has_key(table));
    tables.map(|table| Change { requires_restart: true, ..Change::content(*table) }).collect()
}

fn changed(current: &Config, next: &Config) -> Vec<&'static str> {
    names_of_changed(&[
        ("include", current.include != next.include),
        ("watch", current.watch != next.watch),
        ("listener", current.listeners != next.listeners),
        ("acme", current.acme != next.acme),
        ("issuer", current.issuers != next.issuers),
        ("provider", current.providers != next.providers),
        ("upstream", current.upstreams != next.upstreams),
        ("route", current.routes != next.routes),
        ("token_exchange", current.token_exchanges != next.token_exchanges),
        ("rate", current.rates != next.rates),
        ("identity", current.identity != next.identity),
        ("login", current.login != next.login),
        ("oauth", current.oauth != next.oauth),
        ("sign_in", (&current.sign_in_path, &current.sign_in) != (&next.sign_in_path, &next.sign_in)),
        ("cors", current.cors != next.cors),
        ("https", current.https != next.https),
        ("forwarding", current.forwarding != next.forwarding),
        ("forward_auth", current.forward_auth != next.forward_auth),
        ("access_log", current.access_log != next.access_log),
        ("throttle", current.throttle != next.throttle),
        ("timeouts and limits", current.connections != next.connections || current.limits != next.limits),
    ])
}

fn needs_restart(current: &Config, next: &Config) -> Vec<&'static str> {
    // A reload can replace the certificates of a listener. It cannot switch between cleartext and TLS, or ask clients
    // for certificates: connections without one would stay open.
    let sockets = |config: &Config| {
        let socket = |listener: &ListenerSettings| {
            let clients = listener.clients.as_ref().map(|clients| clients.policy);
            let url = listener.public_url.clone();
            (listener.address, listener.tls == ServerTlsSettings::Off, clients, listener.proxy_protocol, url)
        };
        config.listeners.iter().map(socket).collect::<Vec<_>>()
    };
    names_of_changed(&[
        ("workers", current.workers != next.workers),
        ("listener", sockets(current) != sockets(next)),
        ("admin", current.admin != next.admin),
        ("store", current.store != next.store),
        ("tokens", current.tokens != next.tokens),
        ("audit", current.audit != next.audit),
        ("trace", current.trace != next.trace),
        ("event_stream", current.event_streams != next.event_streams),
        ("access_log", current.access_log.target != next.access_log.target),
        ("timeouts and limits", limits_require_restart(current, next)),
    ])
}

/// What all connections share, and what the broker was built with.
fn limits_require_restart(current: &Config, next: &Config) -> bool {
    let cached = |limits: &Limits| Limits { token_cache_size: 0, used_proofs: 0, ..limits.clone() };
    current.connections.reloaded(&next.connections) != next.connections
        || cached(&current.limits) != cached(&next.limits)
}

fn names_of_changed(tables: &[(&'static str, bool)]) -> Vec<&'static str> {
    tables.iter().filter(|(_, has_changed)| *has_changed).map(|(name, _)| *name).collect()
}

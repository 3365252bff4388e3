//! What a reload swaps in a gateway that is running. When there is one, and for whom, is `when_to_reload`.
//!
//! Routes, rates, upstreams, identity and login headers, OAuth endpoints, which proxies are believed, other issuers with their
//! keys, and certificates are swapped; requests under way end as they began, and neither how the servers of upstreams stand is
//! forgotten nor what was taken of a rate that has not changed. The cache of verified tokens begins anew: what it holds is by
//! the old configuration. All that is read is read before anything is swapped, so a bad file changes nothing. The rest
//! (addresses, the store, the gateway's own tokens, limits and timeouts of connections) takes a restart, and a reload says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::StartError;
use super::prepare::SharedState;
use crate::admin::Reloaded;
use crate::config::Config;
use crate::protocols::tls::{self, ServerTls};
use crate::server::{ListenerSettings, Shared};
use crate::telemetry::metrics::Metrics;
use crate::types::clock::Clock;
use crate::types::reject::with_causes;

/// What a reload swaps.
pub(super) struct LiveConfig {
    pub(super) state: Arc<SharedState>,
    pub(super) shared: Arc<Shared>,
    /// Of each listener, and of the admin listener; `None` for cleartext.
    pub(super) certificates: Vec<Option<Arc<ArcSwap<ServerTls>>>>,
    pub(super) admin_certificate: Option<Arc<ArcSwap<ServerTls>>>,
    /// What is in force, for telling what a reload changes.
    pub(super) config: Mutex<Config>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) outcomes: Arc<Outcomes>,
}

impl LiveConfig {
    /// Puts `config` in force. Answers the parts that changed in it.
    pub(super) fn reload(&self, config: Config) -> Result<Reloaded, StartError> {
        let mut current = self.config();
        let takes_restart = needs_restart(&current, &config);
        // In force from here on stays what takes a restart.
        let next = Config {
            watch: config.watch,
            routes: config.routes,
            rates: config.rates,
            upstreams: config.upstreams,
            identity: config.identity,
            login: config.login,
            oauth: config.oauth,
            forwarding: config.forwarding,
            issuers: config.issuers,
            listeners: if takes_restart.contains(&"listener") { current.listeners.clone() } else { config.listeners },
            ..current.clone()
        };
        let certificates = read_certificates(&next)?;
        let before = self.shared.gateway.load();
        let gateway = self.state.gateway(&next, self.clock.clone(), &before.rates)?;
        self.state.reload_keys(&next)?;
        self.state.put_in_force(&gateway);
        let in_force = changed(&current, &next);
        self.shared.gateway.store(Arc::new(gateway));
        self.swap(certificates);
        *current = next;
        Ok(Reloaded { in_force, takes_restart })
    }

    /// Reads the certificates again that are in force, and nothing else.
    pub(super) fn reload_certificates(&self) -> Result<(), String> {
        let current = self.config();
        self.swap(read_certificates(&current)?);
        Ok(())
    }

    pub(super) fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, certificates: Vec<Option<Arc<ServerTls>>>) {
        let slots = self.certificates.iter().chain([&self.admin_certificate]);
        for (slot, certificate) in slots.zip(certificates) {
            if let (Some(slot), Some(certificate)) = (slot, certificate) {
                slot.store(certificate);
            }
        }
    }
}

/// Of the listeners, and of the admin listener last.
fn read_certificates(config: &Config) -> Result<Vec<Option<Arc<ServerTls>>>, String> {
    let listeners = config.listeners.iter().map(|listener| &listener.tls);
    listeners
        .chain([&config.admin.tls])
        .map(|settings| tls::server_tls(settings).map_err(|error| with_causes(&error)))
        .collect()
}

fn changed(current: &Config, next: &Config) -> Vec<&'static str> {
    those_that_changed(&[
        ("watch", current.watch != next.watch),
        ("listener", current.listeners != next.listeners),
        ("issuer", current.issuers != next.issuers),
        ("upstream", current.upstreams != next.upstreams),
        ("route", current.routes != next.routes),
        ("rate", current.rates != next.rates),
        ("identity", current.identity != next.identity),
        ("login", current.login != next.login),
        ("oauth", current.oauth != next.oauth),
        ("forwarding", current.forwarding != next.forwarding),
    ])
}

fn needs_restart(current: &Config, next: &Config) -> Vec<&'static str> {
    // A listener may change its certificates, nothing else: not from cleartext to TLS or back.
    let sockets = |config: &Config| {
        let socket = |listener: &ListenerSettings| {
            (listener.address, listener.tls == tls::Settings::Off, listener.proxy_protocol)
        };
        config.listeners.iter().map(socket).collect::<Vec<_>>()
    };
    those_that_changed(&[
        ("workers", current.workers != next.workers),
        ("listener", sockets(current) != sockets(next)),
        ("admin", current.admin != next.admin),
        ("store", current.store != next.store),
        ("tokens", current.tokens != next.tokens),
        ("throttle", current.throttle != next.throttle),
        ("audit", current.audit != next.audit),
        ("access_log", current.access_log != next.access_log),
        ("timeouts and limits", current.connections != next.connections || current.limits != next.limits),
    ])
}

fn those_that_changed(parts: &[(&'static str, bool)]) -> Vec<&'static str> {
    parts.iter().filter(|(_, has_changed)| *has_changed).map(|(part, _)| *part).collect()
}

/// How reloads went, for `/metrics`. A start counts as one that succeeded.
pub(super) struct Outcomes {
    last_succeeded: AtomicBool,
    /// Unix seconds.
    last_success: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Outcomes {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let last_success = AtomicU64::new(clock.now().as_secs());
        Outcomes {
            last_succeeded: AtomicBool::new(true),
            last_success,
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn note(&self, succeeded: bool, clock: &dyn Clock) {
        self.last_succeeded.store(succeeded, Ordering::Relaxed);
        if succeeded {
            self.last_success.store(clock.now().as_secs(), Ordering::Relaxed);
        }
        let count = if succeeded { &self.succeeded } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn register_metrics(self: &Arc<Self>, metrics: &mut Metrics) {
        let outcomes = self.clone();
        metrics.gauge(
            "reload_succeeded",
            "Is what is on disk in force? 0 after a reload that changed nothing",
            move || f64::from(u8::from(outcomes.last_succeeded.load(Ordering::Relaxed))),
        );
        let outcomes = self.clone();
        let help = "When the configuration that is in force was read, in Unix time";
        metrics
            .gauge("reload_success_time_seconds", help, move || outcomes.last_success.load(Ordering::Relaxed) as f64);
        let outcomes = self.clone();
        metrics.counters("reloads", "Reloads since the start, by outcome", move || {
            let each = [("succeeded", &outcomes.succeeded), ("failed", &outcomes.failed)];
            let labelled = |(outcome, count): (&str, &AtomicU64)| {
                (vec![("outcome", outcome.to_owned())], count.load(Ordering::Relaxed) as f64)
            };
            each.into_iter().map(labelled).collect()
        });
    }
}

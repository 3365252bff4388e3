//! The upstreams in force, and one task for each, on the control thread, that looks after its servers.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::metrics::{Labelled, Metrics};
use crate::upstream::{self, Report, Upstream};

pub(super) struct UpstreamWatch {
    /// Of the control thread.
    runtime: Handle,
    pub(super) current: Arc<ArcSwap<Vec<Arc<Upstream>>>>,
    /// Ended when dropped.
    tasks: Mutex<JoinSet<()>>,
}

impl UpstreamWatch {
    /// Looks after nothing yet. To be called on the control thread's runtime.
    pub(super) fn new() -> Self {
        UpstreamWatch { runtime: Handle::current(), current: Arc::default(), tasks: Mutex::default() }
    }

    /// What `config` describes. Servers that are in force already stand as they did.
    pub(super) fn prepare(&self, config: &Config) -> Result<Vec<Arc<Upstream>>, String> {
        let current = self.current.load();
        let upstreams = config.upstreams.iter().map(|settings| {
            let before = current.iter().find(|upstream| *upstream.name == settings.name).map(|before| &**before);
            let named = |fault| format!("upstream {}: {fault}", settings.name);
            Upstream::new(settings.clone(), config.workers, before).map(Arc::new).map_err(named)
        });
        upstreams.collect()
    }

    /// From now on these are looked after, and no others.
    pub(super) fn put_in_force(&self, upstreams: &[Arc<Upstream>]) {
        let mut tasks = JoinSet::new();
        for upstream in upstreams {
            tasks.spawn_on(upstream::look_after(upstream.clone()), &self.runtime);
        }
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        self.current.store(Arc::new(upstreams.to_vec()));
    }

    pub(super) fn show(&self, metrics: &mut Metrics) {
        let each = |read: fn(&Report) -> f64| {
            let current = self.current.clone();
            move || labelled(&current.load(), read)
        };
        let help =
            "The part of its requests that a server gets: 1 all, 0 while it is left out, between while it returns";
        metrics.gauges("upstream_server_share", help, each(|server| server.share));
        let help = "Requests under way to a server";
        metrics.gauges("upstream_server_requests", help, each(|server| server.under_way as f64));
        let help = "Times that a server was left out as requests failed";
        metrics.counters("upstream_server_ejections", help, each(|server| server.ejections as f64));
        let help = "Requests that a server failed and that were sent again";
        metrics.counters("upstream_server_retries", help, each(|server| server.retries as f64));
        let help = "Health checks that a server failed";
        metrics.counters("upstream_server_failed_checks", help, each(|server| server.failed_checks as f64));
    }
}

fn labelled(upstreams: &[Arc<Upstream>], read: fn(&Report) -> f64) -> Vec<Labelled> {
    let of = |upstream: &Arc<Upstream>| {
        let name = upstream.name.to_string();
        upstream.report().into_iter().map(move |server| {
            let value = read(&server);
            (vec![("upstream", name.clone()), ("server", server.server)], value)
        })
    };
    upstreams.iter().flat_map(|upstream| of(upstream).collect::<Vec<_>>()).collect()
}

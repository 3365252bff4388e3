//! The upstreams in force, and one task for each, on the control thread, that looks after its servers.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::types::reject::with_causes;
use crate::upstream::{self, Report, Settings, Upstream};

pub(super) struct UpstreamWatch {
    /// Of the control thread.
    runtime: Handle,
    pub(super) current: Arc<ArcSwap<Vec<Arc<Upstream>>>>,
    /// Those in force, and those that were prepared since.
    made: Mutex<Vec<BuiltUpstream>>,
    /// Ended when dropped.
    tasks: Mutex<JoinSet<()>>,
}

struct BuiltUpstream {
    upstream: Arc<Upstream>,
    /// What was in its files: the name of a file does not tell that it has changed.
    files: Vec<Vec<u8>>,
}

impl UpstreamWatch {
    /// Looks after nothing yet. To be called on the control thread's runtime.
    pub(super) fn new() -> Self {
        let (current, made, tasks) = (Arc::default(), Mutex::default(), Mutex::default());
        UpstreamWatch { runtime: Handle::current(), current, made, tasks }
    }

    /// What `config` describes. An upstream that has not changed is the one in force, with its connections; in others,
    /// servers that are in force already stand as they did.
    pub(super) fn prepare(&self, config: &Config) -> Result<Vec<Arc<Upstream>>, String> {
        let (current, mut made) = (self.current.load(), self.made());
        let mut prepare = |settings: &Settings| {
            let files = read_files(settings)?;
            let is_same = |made: &&BuiltUpstream| made.upstream.settings == *settings && made.files == files;
            if let Some(same) = made.iter().find(is_same) {
                return Ok(same.upstream.clone());
            }
            let before = current.iter().find(|upstream| *upstream.name == settings.name).map(|before| &**before);
            let upstream =
                Arc::new(Upstream::new(settings.clone(), config.workers, before).map_err(|error| with_causes(&error))?);
            made.push(BuiltUpstream { upstream: upstream.clone(), files });
            Ok(upstream)
        };
        let named = |settings: &Settings, fault: String| format!("upstream {}: {fault}", settings.name);
        config.upstreams.iter().map(|settings| prepare(settings).map_err(|fault| named(settings, fault))).collect()
    }

    /// From now on these are looked after, and no others.
    pub(super) fn put_in_force(&self, upstreams: &[Arc<Upstream>]) {
        let mut tasks = JoinSet::new();
        for upstream in upstreams {
            tasks.spawn_on(upstream::maintain(upstream.clone()), &self.runtime);
        }
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        self.made().retain(|made| upstreams.iter().any(|upstream| Arc::ptr_eq(upstream, &made.upstream)));
        self.current.store(Arc::new(upstreams.to_vec()));
    }

    fn made(&self) -> MutexGuard<'_, Vec<BuiltUpstream>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let each = |read: fn(&Report) -> f64| {
            let current = self.current.clone();
            move || labelled(&current.load(), read)
        };
        let help =
            "The part of its requests that a server gets: 1 all, 0 while it is left out, between while it returns";
        metrics.gauges("upstream_server_share", help, each(|server| server.share));
        let help = "Requests under way to a server";
        metrics.gauges("upstream_server_requests", help, each(|server| server.in_flight as f64));
        let help = "Times that a server was left out as requests failed";
        metrics.counters("upstream_server_ejections", help, each(|server| server.ejections as f64));
        let help = "Requests that a server failed and that were sent again";
        metrics.counters("upstream_server_retries", help, each(|server| server.retries as f64));
        let help = "Health checks that a server failed";
        metrics.counters("upstream_server_failed_checks", help, each(|server| server.failed_checks as f64));
    }
}

fn read_files(settings: &Settings) -> Result<Vec<Vec<u8>>, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    settings.tls.files().map(|path| read(path)).collect()
}

fn labelled(upstreams: &[Arc<Upstream>], read: fn(&Report) -> f64) -> Vec<LabelledValue> {
    let of = |upstream: &Arc<Upstream>| {
        let name = upstream.name.to_string();
        upstream.report().into_iter().map(move |server| {
            let value = read(&server);
            (vec![("upstream", name.clone()), ("server", server.server)], value)
        })
    };
    upstreams.iter().flat_map(|upstream| of(upstream).collect::<Vec<_>>()).collect()
}

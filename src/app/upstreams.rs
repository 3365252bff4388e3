//! The active upstreams. Each has a task on the control thread, which resolves names and checks the health of servers.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::error::{Cause, StartError};
use crate::config::Config;
use crate::telemetry::metrics::{LabelledValue, Metrics, Totals};
use crate::types::regular_file;
use crate::upstream::{self, Report, Upstream, UpstreamSettings};

pub(super) struct UpstreamWatch {
    /// The runtime of the control thread.
    runtime: Handle,
    pub(super) current: Arc<ArcSwap<Vec<Arc<Upstream>>>>,
    /// The active upstreams, and those that were prepared since, by name.
    built: Mutex<HashMap<String, Vec<BuiltUpstream>>>,
    /// The task of each active upstream. Dropping it ends the task.
    tasks: Mutex<Vec<(Arc<Upstream>, JoinSet<()>)>>,
}

struct BuiltUpstream {
    upstream: Arc<Upstream>,
    /// The content of its files: a file can change under the same name.
    files: Vec<Vec<u8>>,
}

impl UpstreamWatch {
    /// Call it on the runtime of the control thread. It has no upstream yet.
    pub(super) fn new() -> Self {
        let current = Arc::default();
        let built = Mutex::default();
        let tasks = Mutex::default();
        UpstreamWatch { runtime: Handle::current(), current, built, tasks }
    }

    /// Builds the upstreams of `config`. An upstream that has not changed stays, with its connections. In a changed
    /// one, servers that are active already keep their state.
    pub(super) fn prepare(&self, config: &Config) -> Result<Vec<Arc<Upstream>>, StartError> {
        let active = self.current.load();
        let current: HashMap<_, _> = active.iter().map(|upstream| (&upstream.settings.name, &**upstream)).collect();
        let prepare = |settings: &UpstreamSettings| {
            let upstream = self.prepare_one(settings, config.workers, current.get(&settings.name).copied());
            upstream.map_err(|source| StartError::Upstream { name: settings.name.to_string(), source })
        };
        config.upstreams.iter().map(prepare).collect()
    }

    fn prepare_one(
        &self,
        settings: &UpstreamSettings,
        workers: usize,
        previous: Option<&Upstream>,
    ) -> Result<Arc<Upstream>, Cause> {
        let read = |path: &Path| {
            regular_file::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
        };
        let files = settings.tls.files().map(|path| read(path)).collect::<Result<Vec<_>, Cause>>()?;
        let mut built = self.built.lock();
        let of_name = built.entry(settings.name.clone()).or_default();
        let is_same = |built: &&BuiltUpstream| built.upstream.settings == *settings && built.files == files;
        if let Some(same) = of_name.iter().find(is_same) {
            return Ok(same.upstream.clone());
        }
        let upstream = Arc::new(Upstream::new(settings.clone(), workers, previous)?);
        of_name.push(BuiltUpstream { upstream: upstream.clone(), files });
        Ok(upstream)
    }

    /// Starts the tasks of these upstreams, and ends those of all others. An upstream that has not changed keeps its
    /// task, so a reload does not disturb its health checks.
    pub(super) fn activate(&self, upstreams: &[Arc<Upstream>]) {
        let active: HashSet<_> = upstreams.iter().map(Arc::as_ptr).collect();
        let mut tasks = self.tasks.lock();
        tasks.retain(|(upstream, _)| active.contains(&Arc::as_ptr(upstream)));
        let running: HashSet<_> = tasks.iter().map(|(upstream, _)| Arc::as_ptr(upstream)).collect();
        for upstream in upstreams.iter().filter(|upstream| !running.contains(&Arc::as_ptr(upstream))) {
            let mut task = JoinSet::new();
            task.spawn_on(upstream::maintain(upstream.clone()), &self.runtime);
            tasks.push((upstream.clone(), task));
        }
        drop(tasks);
        self.built.lock().retain(|_, of_name| {
            of_name.retain(|built| active.contains(&Arc::as_ptr(&built.upstream)));
            !of_name.is_empty()
        });
        self.current.store(Arc::new(upstreams.to_vec()));
    }

    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let each = |read: fn(&Report) -> f64| {
            let current = self.current.clone();
            move || labelled(&current.load(), read)
        };
        let help =
            "Share of its requests that a server gets: 1 normally, 0 while ejected or unhealthy, between as it returns";
        metrics.gauges("upstream_server_share", help, each(|server| server.share));
        let help = "Requests in flight to a server";
        metrics.gauges("upstream_server_requests", help, each(|server| server.in_flight as f64));
        let help = "How often a server was ejected because requests failed";
        metrics.counters("upstream_server_ejections", help, each(|server| server.ejections as f64));
        let help = "Requests that failed at a server and were sent again, to it or to another one";
        metrics.counters("upstream_server_retries", help, each(|server| server.retries as f64));
        let help = "Failed health checks of a server";
        metrics.counters("upstream_server_failed_checks", help, each(|server| server.failed_checks as f64));
        let help = "Responses of a server that broke off, and WebSockets that it ended without a close frame";
        metrics.counters("upstream_server_broken_responses", help, each(|server| server.broken_responses as f64));
        let help = "Time from when the gateway began to send a request to the response header";
        let current = self.current.clone();
        metrics.histograms("upstream_response_seconds", help, move || {
            let of = |upstream: &Arc<Upstream>| {
                (vec![("upstream", upstream.name.to_string())], Totals::of(upstream.response_times.iter()))
            };
            current.load().iter().map(of).collect()
        });
    }
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

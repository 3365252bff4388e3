//! The keys of other issuers, of providers and of clients: one task for each source, on the control thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::error::StartError;
use crate::auth::keyring::{KeySource, KeyUser, Source, watch};
use crate::auth::provider::Provider;
use crate::auth::registered_clients::RegisteredClient;
use crate::config::{Config, ForeignIssuer};
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::{Audience, Issuer};
use crate::types::clock::Clock;

/// Maximum time that a start or a reload waits for fetched keys.
const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// How often to look whether they were fetched.
const FETCH_POLL: Duration = Duration::from_millis(10);

/// Owns the tasks that keep keys up to date.
pub(super) struct KeyWatch {
    /// The runtime of the control thread.
    runtime: Handle,
    user: Arc<dyn KeyUser>,
    clock: Arc<dyn Clock>,
    /// `Config::file_poll`
    file_poll: Duration,
    watched: Mutex<Vec<Arc<Watched>>>,
}

/// The sources of a reload. The new ones are not in force yet.
pub(super) struct PreparedSources {
    all: Vec<Arc<Watched>>,
    /// Those that the gateway did not have before.
    new: Vec<Arc<Source>>,
}

/// Ends its task when dropped.
struct Watched {
    source: Arc<Source>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KeyWatch {
    /// Call it on the runtime of the control thread. It watches nothing yet.
    pub(super) fn new(user: Arc<dyn KeyUser>, clock: Arc<dyn Clock>, file_poll: Duration) -> Self {
        KeyWatch { runtime: Handle::current(), user, clock, file_poll, watched: Mutex::default() }
    }

    /// Activates these issuers, and waits for the keys of those with `startup = "wait"`.
    pub(super) async fn start(&self, issuers: &[ForeignIssuer]) -> Result<(), StartError> {
        let next = self.prepare(issuers, &[])?;
        wait_until(sources(&next), |source| !source.blocks_startup()).await;
        for source in sources(&next).iter().filter(|source| source.blocks_startup()) {
            let issuer = &source.policy.issuer;
            tracing::warn!(%issuer, "no keys yet; tokens of this issuer get 503 until the gateway has its keys");
        }
        self.activate(next);
        Ok(())
    }

    /// Begins to fetch the keys of a reload. An invalid key file changes nothing.
    pub(super) fn prepare_reload(&self, issuers: &[ForeignIssuer]) -> Result<PreparedSources, StartError> {
        let current = self.watched.lock().clone();
        let all = self.prepare(issuers, &current)?;
        // A source that is known and has no keys is not waited for again.
        let new = all.iter().filter(|next| !current.iter().any(|current| Arc::ptr_eq(current, next)));
        let new = new.map(|watched| watched.source.clone()).collect();
        Ok(PreparedSources { all, new })
    }

    /// Waits until these new sources have answered, or for a limited time. Do not call it on the control thread: the
    /// tasks that fetch the keys run there.
    pub(super) fn wait_for<'p>(&self, prepared: impl Iterator<Item = &'p PreparedSources>) {
        let new: Vec<_> = prepared.flat_map(|prepared| prepared.new.clone()).collect();
        // After a timeout, tokens of an issuer without keys get 503.
        self.run(FETCH_LIMIT, wait_until(new, |source| !source.blocks_reload()));
    }

    /// Runs `work` on the control thread, and waits for it: `limit`, and a second. Do not call it on that thread.
    pub(super) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        self.runtime.spawn(async move {
            // An error means that the receiver has timed out.
            let _ = sender.send(work.await);
        });
        receiver.recv_timeout(limit + Duration::from_secs(1)).ok()
    }

    /// Puts the sources of a reload in force. Returns a warning for each that has not answered yet.
    pub(super) fn finish_reload(&self, prepared: PreparedSources) -> Vec<String> {
        let all = sources(&prepared.all);
        self.activate(prepared.all);
        all.iter().filter_map(|source| source.untried()).collect()
    }

    /// Fails if [`KeyWatch::prepare_reload`] would.
    pub(super) fn check(&self, issuers: &[ForeignIssuer]) -> Result<(), StartError> {
        issuers.iter().try_for_each(|issuer| read_file(issuer).map(drop))
    }

    fn prepare(&self, issuers: &[ForeignIssuer], current: &[Arc<Watched>]) -> Result<Vec<Arc<Watched>>, StartError> {
        // Reads every file before a file changes anything.
        let keys: Vec<Option<KeySet>> = issuers.iter().map(read_file).collect::<Result<_, _>>()?;
        let watched = issuers.iter().zip(keys).map(|(issuer, keys)| {
            let watched = self.watched(issuer, current);
            if let Some(keys) = keys {
                watched.source.confirm(keys, self.clock.uptime());
            }
            watched
        });
        Ok(watched.collect())
    }

    /// The current task of this issuer if nothing has changed, or a new one.
    fn watched(&self, issuer: &ForeignIssuer, current: &[Arc<Watched>]) -> Arc<Watched> {
        let source = Source::new(issuer.policy.clone(), issuer.keys.clone());
        let same = current.iter().find(|watched| watched.source.has_same_keys(&source));
        if let Some(same) = same.filter(|same| same.source.policy == source.policy) {
            // After a reload, the operator expects the keys that the issuer has now.
            same.source.fetch_now();
            return same.clone();
        }
        let is_of_issuer = |watched: &&Arc<Watched>| watched.source.policy.issuer == source.policy.issuer;
        if let Some(before) = same.or_else(|| current.iter().find(is_of_issuer)) {
            source.inherit_keys(&before.source);
        }
        let source = Arc::new(source);
        let task = watch(source.clone(), self.user.clone(), self.clock.clone(), self.file_poll);
        let task = self.runtime.spawn(task);
        Arc::new(Watched { source, task: task.abort_handle() })
    }

    fn activate(&self, next: Vec<Arc<Watched>>) {
        self.user.replace_sources(sources(&next));
        *self.watched.lock() = next;
    }

    /// The age of the keys of each source, and the results of fetching them. The label is bounded: the sources are
    /// those of the configuration.
    pub(super) fn register_metrics(&self, metrics: &mut Metrics, names: &'static MetricNames) {
        let each = |read: fn(&Source, &dyn Clock, &'static str) -> Vec<LabelledValue>| {
            let user = self.user.clone();
            let clock = self.clock.clone();
            move || user.sources().iter().flat_map(|source| read(source, &*clock, names.label)).collect()
        };
        let [(age_name, age_help), (fetches, fetches_help)] = [names.age, names.fetches];
        metrics.gauges(age_name, age_help, each(age));
        metrics.counters(fetches, fetches_help, each(visits));
    }
}

/// The metrics of one kind of source: names and descriptions.
pub(super) struct MetricNames {
    label: &'static str,
    age: (&'static str, &'static str),
    fetches: (&'static str, &'static str),
}

pub(super) static OF_ISSUERS: MetricNames = MetricNames {
    label: "issuer",
    age: ("issuer_keys_age_seconds", "Seconds since the source of each issuer last confirmed its keys"),
    fetches: ("issuer_key_fetches", "Fetches from the key source of each issuer, by outcome"),
};

pub(super) static OF_PROVIDERS: MetricNames = MetricNames {
    label: "issuer",
    age: ("provider_keys_age_seconds", "Seconds since each provider last confirmed its keys"),
    fetches: ("provider_key_fetches", "Fetches of the keys of each provider, by outcome"),
};

pub(super) static OF_CLIENTS: MetricNames = MetricNames {
    label: "client",
    age: ("client_keys_age_seconds", "Seconds since the source of each client last confirmed its keys"),
    fetches: ("client_key_fetches", "Fetches from the key source of each client, by outcome"),
};

fn age(source: &Source, clock: &dyn Clock, label: &'static str) -> Vec<LabelledValue> {
    let age = source.age(clock.uptime());
    age.into_iter().map(|age| (vec![(label, source.policy.issuer.to_string())], age.as_secs_f64())).collect()
}

fn visits(source: &Source, _clock: &dyn Clock, label: &'static str) -> Vec<LabelledValue> {
    let counts = &source.counts;
    let outcomes = [("changed", &counts.changed), ("unchanged", &counts.unchanged), ("failed", &counts.failed)];
    let labelled = |(outcome, count): (&str, &std::sync::atomic::AtomicU64)| {
        let labels = vec![(label, source.policy.issuer.to_string()), ("outcome", outcome.to_owned())];
        (labels, count.load(Ordering::Relaxed) as f64)
    };
    outcomes.into_iter().map(labelled).collect()
}

/// Each client as the issuer of its assertions. Clients with certificates have none.
pub(super) fn of_clients(config: &Config) -> Vec<ForeignIssuer> {
    // `tokens.issuer` needs a restart, and other settings of the same file do not.
    let audience = || Audience::OneOf(vec![config.tokens.issuer.clone()]);
    let policy = |policy: &Issuer| Issuer { audience: audience(), ..policy.clone() };
    let clients = config.oauth.clients.iter().filter_map(RegisteredClient::assertions);
    clients
        .map(|(rules, keys)| ForeignIssuer { policy: policy(rules), keys: keys.clone(), introspection: None })
        .collect()
}

/// Where the keys of the providers come from.
pub(super) fn of_providers(config: &Config) -> Vec<ForeignIssuer> {
    let keys = |provider: &Arc<Provider>| {
        let (policy, keys) = provider.keys();
        ForeignIssuer { policy, keys, introspection: None }
    };
    config.providers.iter().map(keys).collect()
}

fn sources(watched: &[Arc<Watched>]) -> Vec<Arc<Source>> {
    watched.iter().map(|watched| watched.source.clone()).collect()
}

fn read_file(issuer: &ForeignIssuer) -> Result<Option<KeySet>, StartError> {
    let KeySource::File(file) = &issuer.keys else { return Ok(None) };
    let keys = file.read(&issuer.policy).map(Some);
    keys.map_err(|error| StartError::IssuerKeys { issuer: issuer.policy.issuer.to_string(), source: error.into() })
}

async fn wait_until(sources: Vec<Arc<Source>>, is_ready: fn(&Source) -> bool) {
    let deadline = Instant::now() + FETCH_LIMIT;
    while !sources.iter().all(|source| is_ready(source)) && Instant::now() < deadline {
        sleep(FETCH_POLL).await;
    }
}

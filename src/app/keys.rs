//! Keys of other issuers: one task for each source, on the control thread, and the wait for the first of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::auth::keyring::{KeySource, Keyring, Source, watch};
use crate::config::ForeignIssuer;
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::tokens::jwt::key_set::KeySet;
use crate::types::clock::Clock;
use crate::types::reject::with_causes;

/// A start does not wait longer for keys that are fetched.
const PATIENCE: Duration = Duration::from_secs(10);

/// Owns the tasks that keep keys up to date.
pub(super) struct KeyWatch {
    /// Of the control thread.
    runtime: Handle,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    watched: Mutex<Vec<Arc<Watched>>>,
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
    /// Watches nothing yet. To be called on the control thread's runtime.
    pub(super) fn new(keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Self {
        KeyWatch { runtime: Handle::current(), keyring, clock, watched: Mutex::default() }
    }

    /// Puts these issuers in force, with the keys that are worth waiting for.
    pub(super) async fn start(&self, issuers: &[ForeignIssuer]) -> Result<(), String> {
        let next = self.prepare(issuers, &[])?;
        wait_for_keys(sources(&next)).await;
        self.put_in_force(next);
        Ok(())
    }

    /// As [`KeyWatch::start`], with other issuers than before. Nothing changes if a file is unfit. Not to be called on the
    /// control thread, which does the work that is waited for here.
    pub(super) fn restart(&self, issuers: &[ForeignIssuer]) -> Result<(), String> {
        let current = self.watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let next = self.prepare(issuers, &current)?;
        // Those that were waited for in vain before would be again.
        let new = next.iter().filter(|next| !current.iter().any(|current| Arc::ptr_eq(current, next)));
        let waited_for = new.map(|watched| watched.source.clone()).collect();
        let (done, is_done) = mpsc::channel();
        self.runtime.spawn(async move {
            wait_for_keys(waited_for).await;
            // Whoever waited may have gone.
            let _ = done.send(());
        });
        // Without an answer, the start is closed: see `start`.
        let _ = is_done.recv_timeout(PATIENCE + Duration::from_secs(1));
        self.put_in_force(next);
        Ok(())
    }

    fn prepare(&self, issuers: &[ForeignIssuer], current: &[Arc<Watched>]) -> Result<Vec<Arc<Watched>>, String> {
        // Every file is read before anything is changed by one.
        let read = |issuer: &ForeignIssuer| match &issuer.keys {
            KeySource::File(file) => file.read(&issuer.policy).map(Some).map_err(|error| with_causes(&error)),
            KeySource::Remote(_) => Ok(None),
        };
        let keys: Vec<Option<KeySet>> = issuers.iter().map(read).collect::<Result<_, _>>()?;
        let watched = issuers.iter().zip(keys).map(|(issuer, keys)| {
            let watched = self.watched(issuer, current);
            if let Some(keys) = keys {
                watched.source.confirm(keys, self.clock.now());
            }
            watched
        });
        Ok(watched.collect())
    }

    /// What is watched already if nothing about it has changed.
    fn watched(&self, issuer: &ForeignIssuer, current: &[Arc<Watched>]) -> Arc<Watched> {
        let source = Source::new(issuer.policy.clone(), issuer.keys.clone());
        if let Some(same) = current.iter().find(|watched| watched.source.has_same_keys(&source)) {
            if same.source.policy == source.policy {
                // Whoever reloads wants what is true now.
                same.source.fetch_now();
                return same.clone();
            }
            source.inherit_keys(&same.source);
        }
        let source = Arc::new(source);
        let task = self.runtime.spawn(watch(source.clone(), self.keyring.clone(), self.clock.clone()));
        Arc::new(Watched { source, task: task.abort_handle() })
    }

    fn put_in_force(&self, next: Vec<Arc<Watched>>) {
        self.keyring.replace_sources(sources(&next));
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// How old each issuer's keys are, and how asking for them goes. Issuers are a closed set: those of the configuration.
    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let each = |read: fn(&Source, &dyn Clock) -> Vec<LabelledValue>| {
            let (keyring, clock) = (self.keyring.clone(), self.clock.clone());
            move || keyring.keys().sources().iter().flat_map(|source| read(source, &*clock)).collect()
        };
        let help = "Seconds since each issuer's source last confirmed its keys";
        metrics.gauges("issuer_keys_age_seconds", help, each(age));
        metrics.counters("issuer_key_visits", "Visits to each issuer's source of keys", each(visits));
    }
}

fn age(source: &Source, clock: &dyn Clock) -> Vec<LabelledValue> {
    let age =
        source.age(clock.now()).map(|age| (vec![("issuer", source.policy.issuer.to_string())], age.as_secs_f64()));
    age.into_iter().collect()
}

fn visits(source: &Source, _clock: &dyn Clock) -> Vec<LabelledValue> {
    let counts = &source.counts;
    let outcomes = [("changed", &counts.changed), ("unchanged", &counts.unchanged), ("failed", &counts.failed)];
    let labelled = |(outcome, count): (&str, &std::sync::atomic::AtomicU64)| {
        let labels = vec![("issuer", source.policy.issuer.to_string()), ("outcome", outcome.to_owned())];
        (labels, count.load(Ordering::Relaxed) as f64)
    };
    outcomes.into_iter().map(labelled).collect()
}

fn sources(watched: &[Arc<Watched>]) -> Vec<Arc<Source>> {
    watched.iter().map(|watched| watched.source.clone()).collect()
}

async fn wait_for_keys(sources: Vec<Arc<Source>>) {
    let deadline = Instant::now() + PATIENCE;
    while sources.iter().any(|source| source.blocks_startup()) && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    for source in sources.iter().filter(|source| source.blocks_startup()) {
        let issuer = &source.policy.issuer;
        tracing::warn!(%issuer, "there are no keys yet: tokens of this issuer get 503 until there are");
    }
}

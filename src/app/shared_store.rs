//! The work of a gateway that shares its store with others: it uses their clock, puts their signing keys in force, and
//! reports how far behind it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::store_pool;
use crate::auth::keyring::Keyring;
use crate::broker::keys::OwnKeys;
use crate::protocols::tls::{TicketKey, TicketKeys, TicketSource, WINDOW};
use crate::store::{FollowerCounts, Freshness, SharedClock, Store};
use crate::telemetry::metrics::Metrics;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::ticket_key::StoredTicketKey;
use crate::types::clock::{Clock, UnixTime, every};
use crate::types::reject::with_causes;

/// How often to look for a new key of TLS session tickets.
const TICKET_INTERVAL: Duration = Duration::from_mins(1);
/// The pause after a failed attempt to read the signing keys.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The clock that all gateways on this store agree on. A clock that a test sets stays as it is.
pub(super) fn clock(store: &dyn Store, local: Arc<dyn Clock>) -> Arc<dyn Clock> {
    match store.freshness() {
        Some(freshness) if local.is_of_system() => Arc::new(SharedClock::new(local, freshness)),
        _ => local,
    }
}

/// Puts the signing keys in force that other gateways have changed. Until it has, the gateway does not count as fresh,
/// because one of the keys may have been revoked.
///
/// A token with an unknown key makes it look at once, because the news of a change may be on its way.
pub(super) async fn follow_keys(
    freshness: Option<Arc<Freshness>>,
    keys: Arc<OwnKeys>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
) {
    let (Some(freshness), Some(asked)) = (freshness, keyring.own_refetch()) else { return };
    let mut versions = freshness.keys();
    let mut last_error = String::new();
    loop {
        let version = *versions.borrow_and_update();
        match asked.answer(keys.reload(clock.now())).await {
            Ok(()) => {
                freshness.keys_in_force(version);
                if !std::mem::take(&mut last_error).is_empty() {
                    tracing::info!("the signing keys of the store can be read again");
                }
                tokio::select! {
                    changed = versions.changed() => if changed.is_err() {
                        return;
                    },
                    () = asked.requested() => {}
                }
            }
            Err(error) => {
                let error = with_causes(&error);
                if error != last_error {
                    tracing::error!(error, "cannot read the signing keys that another gateway has changed");
                    last_error = error;
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// The session tickets of the listeners. If the keys cannot be read now, [`follow_ticket_keys`] reads them later: until
/// then, each connection has a full handshake.
pub(super) async fn tickets(store: &dyn Store, roots: &Roots, now: UnixTime) -> TicketSource {
    if store.freshness().is_none() {
        return TicketSource::Process;
    }
    let keys = Arc::<TicketKeys>::default();
    update_ticket_keys(store, roots, &keys, now).await;
    TicketSource::Shared(keys)
}

/// Uses a new key in each window, and forgets those that open no valid ticket.
pub(super) async fn follow_ticket_keys(
    tickets: TicketSource,
    store: Arc<dyn Store>,
    roots: Arc<Roots>,
    clock: Arc<dyn Clock>,
) {
    let TicketSource::Shared(keys) = &tickets else { return };
    let mut due = every(TICKET_INTERVAL);
    loop {
        due.tick().await;
        update_ticket_keys(&*store, &roots, keys, clock.now()).await;
    }
}

async fn update_ticket_keys(store: &dyn Store, roots: &Roots, keys: &TicketKeys, now: UnixTime) {
    let period = now.as_secs() / WINDOW.as_secs();
    keys.forget_before(period.saturating_sub(1));
    let Some(candidate) = StoredTicketKey::create(period, roots) else { return };
    match store.ticket_keys(candidate).await {
        Ok(stored) => {
            let open = |key: &StoredTicketKey| Some(TicketKey::new(key.period, &key.open(roots)?));
            keys.replace(stored.iter().filter_map(open).collect());
        }
        // The keys in memory go on to work.
        Err(error) => tracing::warn!(%error, "cannot read the keys of TLS session tickets"),
    }
}

/// A store of one gateway has none of them.
pub(super) fn register_metrics(store: &dyn Store, metrics: &mut Metrics) {
    if let Some(pool) = store.pool() {
        store_pool::register_metrics(&pool, metrics);
    }
    let Some(freshness) = store.freshness() else { return };
    let lag = freshness.clone();
    let help = "Seconds since the last time that all revocations of the store were known here";
    metrics.gauge("revocation_lag_seconds", help, move || lag.age().as_secs_f64());
    let lag = freshness.clone();
    let help = "Revocations in the store that are not in force here yet";
    metrics.gauge("revocation_lag_entries", help, move || {
        let counts = &lag.counts;
        let newest = counts.newest.load(Ordering::Relaxed);
        newest.saturating_sub(counts.applied.load(Ordering::Relaxed)) as f64
    });
    let offset = freshness.clone();
    let help = "Seconds that the clock of the store is ahead of the clock of this machine";
    metrics.gauge("store_clock_offset_seconds", help, move || offset.store_time.offset() as f64 / 1e6);
    let live = freshness.clone();
    metrics.gauge("store_replicas", "Gateways that use the store now", move || {
        live.counts.live.load(Ordering::Relaxed) as f64
    });
    let lost = freshness.clone();
    let help = "Revocations that the store has lost, and that this gateway must write again";
    metrics.gauge("revocations_lost", help, move || lost.counts.lost.load(Ordering::Relaxed) as f64);
    let mut counter = |name: &'static str, help: &'static str, count: fn(&FollowerCounts) -> &AtomicU64| {
        let freshness = freshness.clone();
        metrics.counter(name, help, move || count(&freshness.counts).load(Ordering::Relaxed) as f64);
    };
    counter("revocation_reloads", "How often all revocations were read again", |counts| &counts.reloads);
    counter("store_forked", "How often the store was rolled back to an older state", |counts| &counts.forks);
    counter("revocation_gaps", "Missing entries in the log of revocations", |counts| &counts.gaps);
    let help = "How often the clock of the store was found set back";
    counter("store_clock_set_back", help, |counts| &counts.set_back);
    let help = "Refreshes of a session after one that is dated ahead of the store";
    counter("refreshes_ahead", help, |counts| &counts.ahead);
    counter("revocations_written_back", "Revocations that the store had lost, and that were written again", |counts| {
        &counts.written_back
    });
}

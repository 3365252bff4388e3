//! Certificates from an ACME server: what is wanted and known, and what the metrics show.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::Config;
use crate::protocols::tls::AcmeState;
use crate::server::acme::{Entries, Wanted};
use crate::store::Store;
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::tokens::family::refresh_token::Roots;

/// Reads the certificates of the store, before clients can connect. Without the store, the gateway begins without them.
pub(super) async fn open(config: &Config, store: &Arc<dyn Store>, roots: &Arc<Roots>) -> Arc<Entries> {
    let wanted = wanted(config);
    let is_used = !wanted.names.is_empty();
    let entries = Entries::new(store.clone(), roots.clone(), config.store.timeout, wanted);
    if is_used && let Err(error) = entries.read().await {
        tracing::warn!(%error, "cannot read the ACME certificates of the store");
    }
    Arc::new(entries)
}

/// The names of all listeners, each once.
pub(super) fn wanted(config: &Config) -> Wanted {
    let mut names: Vec<String> = Vec::new();
    for name in config.listeners.iter().flat_map(|listener| listener.tls.acme_names()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Wanted { names, settings: config.acme.clone() }
}

pub(super) fn register_metrics(entries: &Arc<Entries>, metrics: &mut Metrics) {
    let orders = entries.clone();
    let help = "Certificates that the ACME server has issued, and orders that failed";
    metrics.counters("acme_orders", help, move || {
        let counts = &orders.counts;
        [("issued", &counts.issued), ("failed", &counts.failed)]
            .map(|(result, count)| (vec![("result", result.to_owned())], count.load(Ordering::Relaxed) as f64))
            .into()
    });
    let validated = entries.certificates.clone();
    let help = "Connections by which an ACME server has validated a name";
    metrics.counter("acme_validations", help, move || validated.validations() as f64);
    let of_names = |read: fn(&Entries, &str) -> Option<f64>| {
        let entries = entries.clone();
        move || -> Vec<LabelledValue> {
            let names = entries.names();
            let labelled = |name: &String| Some((vec![("name", name.clone())], read(&entries, name)?));
            names.iter().filter_map(labelled).collect()
        }
    };
    let help = "Failed orders in a row of each name for an ACME server";
    metrics.gauges("acme_failures", help, of_names(|entries, name| Some(f64::from(state(entries, name)?.failures))));
    let help = "When the certificate of each name is ordered next, in Unix time";
    let next = |entries: &Entries, name: &str| Some(state(entries, name)?.next_order?.as_secs() as f64);
    metrics.gauges("acme_next_order_timestamp_seconds", help, of_names(next));
}

fn state(entries: &Entries, name: &str) -> Option<AcmeState> {
    Some(entries.certificates.name(name)?.state.clone())
}

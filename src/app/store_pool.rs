//! The metrics of the connections to a shared store.

use std::sync::Arc;

use crate::store::{OpenConnections, OperationKind, PoolStatus};
use crate::telemetry::metrics::{Histogram, LabelledTotals, Metrics, Totals};

/// In the order of [`OperationKind::ALL`].
type Durations = [Histogram; OperationKind::ALL.len()];

pub(super) fn register_metrics(pool: &Arc<PoolStatus>, metrics: &mut Metrics) {
    let up = pool.clone();
    let help = "1 if a connection for changes is open to the store, otherwise 0";
    metrics.gauge("store_up", help, move || f64::from(u8::from(up.open().changes > 0)));
    let open = pool.clone();
    metrics.gauges("store_connections", "Open connections to the store, by what they are for", move || {
        let OpenConnections { changes, log, upkeep, follower } = open.open();
        let lanes = [("changes", changes), ("log", log), ("upkeep", upkeep), ("follower", follower)];
        lanes.map(|(lane, count)| (vec![("lane", lane.to_owned())], count as f64)).into()
    });
    let operations = pool.clone();
    let help = "Operations of the store that wait for a connection, or run on one";
    metrics.gauges("store_operations", help, move || {
        let labelled = |state: &str, count: u64| (vec![("state", state.to_owned())], count as f64);
        vec![labelled("waiting", operations.waiting()), labelled("running", operations.running())]
    });
    let durations = Arc::<Durations>::new([const { Histogram::of_requests() }; OperationKind::ALL.len()]);
    let observed = durations.clone();
    pool.observe_with(Arc::new(move |kind, duration| observed[kind as usize].observe_shared(duration)));
    let help = "Time of each operation of the store on its connection";
    metrics.histograms("store_operation_seconds", help, move || by_operation(&durations));
}

fn by_operation(durations: &Durations) -> Vec<LabelledTotals> {
    let labelled = |(kind, histogram): (OperationKind, &Histogram)| {
        (vec![("operation", kind.as_str().to_owned())], Totals::of([histogram]))
    };
    OperationKind::ALL.into_iter().zip(durations).map(labelled).collect()
}

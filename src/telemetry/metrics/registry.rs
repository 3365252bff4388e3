//! All metrics of the gateway: the workers' counters, and values that other modules register.

use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::MetricType;

use super::count::Count;
use super::histogram::{Histogram, Totals};
use super::process;
use super::values::{Family, HistogramFamily, LabelledTotals, LabelledValue, Single};
use super::worker::WorkerMetrics;

/// Everything that `/metrics` shows.
pub struct Metrics {
    workers: Vec<Arc<WorkerMetrics>>,
    pub(super) singles: Vec<Single>,
    pub(super) families: Vec<Family>,
    pub(super) histograms: Vec<HistogramFamily>,
    pub(super) process: Vec<Single>,
}

impl Metrics {
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Arc::new(WorkerMetrics::default())).collect();
        let mut metrics = Metrics {
            workers,
            singles: Vec::new(),
            families: Vec::new(),
            histograms: Vec::new(),
            process: process::metrics(SystemTime::now()),
        };
        metrics.gauges("build_info", "The version of the program; the value is always 1", || {
            vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)]
        });
        metrics
    }

    pub fn worker(&self, number: usize) -> Arc<WorkerMetrics> {
        self.workers[number].clone()
    }

    /// Registers a gauge that is read at each scrape.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.singles.push(Single { name, help, kind: MetricType::Gauge, read: Box::new(read) });
    }

    /// Registers a counter that is read at each scrape. It must only grow.
    pub fn counter(&mut self, name: &'static str, help: &'static str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.singles.push(Single { name, help, kind: MetricType::Counter, read: Box::new(read) });
    }

    /// As [`Metrics::gauge`], with labels from a closed set.
    pub fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<LabelledValue> + Send + Sync + 'static,
    ) {
        self.families.push(Family { name, help, kind: MetricType::Gauge, read: Box::new(read) });
    }

    /// As [`Metrics::counter`], with labels from a closed set.
    pub fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<LabelledValue> + Send + Sync + 'static,
    ) {
        self.families.push(Family { name, help, kind: MetricType::Counter, read: Box::new(read) });
    }

    /// As [`Metrics::gauges`], for histograms of seconds.
    pub fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<LabelledTotals> + Send + Sync + 'static,
    ) {
        self.histograms.push(HistogramFamily { name, help, read: Box::new(read) });
    }

    /// The counters of the workers, and those of the thread that serves the admin listener, which are the last.
    pub(super) fn workers_and_admin(&self) -> (&[Arc<WorkerMetrics>], Option<&WorkerMetrics>) {
        match self.workers.split_last() {
            Some((admin, workers)) => (workers, Some(admin)),
            None => (&[], None),
        }
    }

    pub(super) fn sum(&self, read: impl Fn(&WorkerMetrics) -> &Count) -> u64 {
        self.workers.iter().map(|worker| read(worker).get()).sum()
    }

    pub(super) fn sum_of(&self, read: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(worker)).sum()
    }

    pub(super) fn totals(&self, read: fn(&WorkerMetrics) -> &Histogram) -> Totals {
        Totals::of(self.workers.iter().map(|worker| read(worker)))
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.workers.iter().map(|worker| worker.in_flight()).sum()
    }
}

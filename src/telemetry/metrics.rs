//! What the gateway counts, and how it is shown to Prometheus.
//!
//! Each worker has counters of its own that only it writes, so counting is an ordinary addition and no two cores share a
//! cache line. A scrape adds them up. Labels are closed sets: nothing that a client chooses becomes one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::types::close_reason::CloseReason;
use crate::types::reject::Reason;

/// A number that one thread alone increases. Others may read it.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, amount: u64) {
        // One writer: no read-modify-write is needed, which costs a tenth of an atomic addition.
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the request duration histogram, in microseconds.
const BOUNDS: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000];

/// The counters of one worker.
pub struct WorkerMetrics {
    /// By status class: 1xx to 5xx, and 0 for requests whose client left before an answer.
    pub requests: [Count; 6],
    pub rejections: [Count; Reason::ALL.len()],
    pub observations: [Count; Reason::ALL.len()],
    /// Requests that began, and those that are over: what is between is under way.
    pub begun: Count,
    pub ended: Count,
    /// Cumulative only when shown.
    duration: [Count; BOUNDS.len() + 1],
    duration_micros: Count,
    pub connections_opened: Count,
    pub connections_closed: Count,
    pub connections_rejected: Count,
    pub address_connections_rejected: Count,
    pub penalized_connections_rejected: Count,
    pub handshakes_failed: Count,
    pub proxy_protocol_failed: Count,
    pub slow_clients_disconnected: Count,
    pub token_cache_hits: Count,
    pub token_cache_misses: Count,
    pub upstream_connects: Count,
    pub upstream_retries: Count,
    pub access_log_dropped: Count,
    pub streams_opened: Count,
    pub streams_closed: Count,
    streams_ended: [Count; Reason::ALL.len()],
    streams_drained: Count,
}

/// Shown to nobody, until a [`Metrics`] has it.
impl Default for WorkerMetrics {
    fn default() -> Self {
        WorkerMetrics {
            requests: Default::default(),
            rejections: std::array::from_fn(|_| Count::default()),
            observations: std::array::from_fn(|_| Count::default()),
            begun: Count::default(),
            ended: Count::default(),
            duration: Default::default(),
            duration_micros: Count::default(),
            connections_opened: Count::default(),
            connections_closed: Count::default(),
            connections_rejected: Count::default(),
            address_connections_rejected: Count::default(),
            penalized_connections_rejected: Count::default(),
            handshakes_failed: Count::default(),
            proxy_protocol_failed: Count::default(),
            slow_clients_disconnected: Count::default(),
            token_cache_hits: Count::default(),
            token_cache_misses: Count::default(),
            upstream_connects: Count::default(),
            upstream_retries: Count::default(),
            access_log_dropped: Count::default(),
            streams_opened: Count::default(),
            streams_closed: Count::default(),
            streams_ended: std::array::from_fn(|_| Count::default()),
            streams_drained: Count::default(),
        }
    }
}

impl WorkerMetrics {
    /// One request is over. `status` is 0 if its client left before an answer.
    pub fn request_over(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).min(5);
        self.requests[class].one();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.duration[BOUNDS.partition_point(|bound| *bound < micros)].one();
        self.duration_micros.add(micros);
    }

    /// Requests under way: their answers are not out, or their tunnels are open.
    pub fn under_way(&self) -> u64 {
        self.begun.get().saturating_sub(self.ended.get())
    }

    pub fn refused(&self, reason: Reason) {
        self.rejections[reason.index()].one();
    }

    pub fn observed(&self, reason: Reason) {
        self.observations[reason.index()].one();
    }

    pub fn stream_ended(&self, ended: CloseReason) {
        match ended {
            CloseReason::Token(reason) => self.streams_ended[reason.index()].one(),
            CloseReason::OutOfTime => self.streams_ended[Reason::RequestTimeout.index()].one(),
            CloseReason::Draining => self.streams_drained.one(),
        }
    }
}

/// Read when somebody looks.
type Reading = Box<dyn Fn() -> f64 + Send + Sync>;

/// A value with the labels that tell it from its siblings.
pub type LabelledValue = (Vec<(&'static str, String)>, f64);

/// Values that are known by labels, read when somebody looks.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: Box<dyn Fn() -> Vec<LabelledValue> + Send + Sync>,
}

/// Everything that `/metrics` shows.
pub struct Metrics {
    workers: Vec<Arc<WorkerMetrics>>,
    gauges: Vec<(&'static str, &'static str, Reading)>,
    counters: Vec<(&'static str, &'static str, Reading)>,
    families: Vec<Family>,
}

impl Metrics {
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Arc::new(WorkerMetrics::default())).collect();
        Metrics { workers, gauges: Vec::new(), counters: Vec::new(), families: Vec::new() }
    }

    pub fn worker(&self, number: usize) -> Arc<WorkerMetrics> {
        self.workers[number].clone()
    }

    /// Adds a value that is read when somebody looks.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.gauges.push((name, help, Box::new(read)));
    }

    /// As [`Metrics::gauge`], of a value that only grows.
    pub fn counter(&mut self, name: &'static str, help: &'static str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.counters.push((name, help, Box::new(read)));
    }

    /// As [`Metrics::gauge`], a value for each of a closed set of labels.
    pub fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<LabelledValue> + Send + Sync + 'static,
    ) {
        self.families.push(Family { name, help, kind: MetricType::Gauge, read: Box::new(read) });
    }

    /// As [`Metrics::gauges`], of values that only grow.
    pub fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<LabelledValue> + Send + Sync + 'static,
    ) {
        self.families.push(Family { name, help, kind: MetricType::Counter, read: Box::new(read) });
    }

    /// The exposition text, in the OpenMetrics format that Prometheus reads.
    pub fn render(self: &Arc<Self>) -> String {
        let mut registry = Registry::with_prefix("bearward");
        registry.register_collector(Box::new(MetricsCollector(self.clone())));
        let mut page = String::new();
        match text::encode(&mut page, &registry) {
            Ok(()) => page,
            // Writing to a string does not fail.
            Err(fmt::Error) => String::new(),
        }
    }

    fn sum(&self, read: impl Fn(&WorkerMetrics) -> &Count) -> u64 {
        self.workers.iter().map(|worker| read(worker).get()).sum()
    }
}

struct MetricsCollector(Arc<Metrics>);

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Collector for MetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        let mut family =
            encoder.encode_descriptor("requests", "Requests by status class", None, MetricType::Counter)?;
        for (class, label) in ["client_closed", "1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
            let count = ConstCounter::new(metrics.sum(|worker| &worker.requests[class]));
            count.encode(family.encode_family(&[("status", label)])?)?;
        }
        for (name, help, counts) in BY_REASON {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for reason in Reason::ALL {
                let count = ConstCounter::new(metrics.sum(|worker| &counts(worker)[reason.index()]));
                count.encode(family.encode_family(&[("reason", reason.code())])?)?;
            }
        }
        self.encode_duration(&mut encoder)?;
        let under_way: u64 = metrics.workers.iter().map(|worker| worker.under_way()).sum();
        let gauge = encoder.encode_descriptor("requests_in_flight", UNDER_WAY, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(under_way).unwrap_or(i64::MAX)).encode(gauge)?;
        for (name, help, read) in COUNTERS {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(metrics.sum(read)).encode(encoder)?;
        }
        for (name, help, read) in &metrics.gauges {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(read()).encode(encoder)?;
        }
        for (name, help, read) in &metrics.counters {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(read()).encode(encoder)?;
        }
        metrics.families.iter().try_for_each(|family| encode_family(&mut encoder, family))
    }
}

fn encode_family(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
    for (labels, value) in (family.read)() {
        let encoder = encoder.encode_family(&labels)?;
        match family.kind {
            MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
            _ => ConstGauge::new(value).encode(encoder)?,
        }
    }
    Ok(())
}

impl MetricsCollector {
    fn encode_duration(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut buckets = Vec::with_capacity(BOUNDS.len() + 1);
        for place in 0..=BOUNDS.len() {
            let bound = BOUNDS.get(place).map_or(f64::INFINITY, |micros| *micros as f64 / 1e6);
            buckets.push((bound, self.0.sum(|worker| &worker.duration[place])));
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.sum(|worker| &worker.duration_micros) as f64 / 1e6;
        let name = "request_duration_seconds";
        let help = "From the request head to the last byte of the answer";
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

const UNDER_WAY: &str = "Requests whose answers are not out, and open WebSockets";

type ReadReasons = fn(&WorkerMetrics) -> &[Count];

const BY_REASON: &[(&str, &str, ReadReasons)] = &[
    ("rejections", "Requests refused, by reason", |worker| &worker.rejections),
    (
        "observed",
        "Requests let through on routes that do not enforce, by the reason for which others refuse them",
        |worker| &worker.observations,
    ),
    (
        "streams_ended",
        "Streams and requests under way that ended with their token, by the reason for which it is refused",
        |worker| &worker.streams_ended,
    ),
];

type ReadCount = fn(&WorkerMetrics) -> &Count;

const COUNTERS: &[(&str, &str, ReadCount)] = &[
    ("connections_opened", "Client connections accepted", |worker| &worker.connections_opened),
    ("connections_closed", "Client connections ended", |worker| &worker.connections_closed),
    ("connections_rejected", "Client connections over the limit", |worker| &worker.connections_rejected),
    ("address_connections_rejected", "Client connections over the limit of their address", |worker| {
        &worker.address_connections_rejected
    }),
    (
        "penalized_connections_rejected",
        "Client connections of an address that flooded the gateway a moment ago",
        |worker| &worker.penalized_connections_rejected,
    ),
    ("tls_handshakes_failed", "TLS handshakes that failed or timed out", |worker| &worker.handshakes_failed),
    (
        "proxy_protocol_failed",
        "Connections without a PROXY protocol header, or from a peer that is not trusted",
        |worker| &worker.proxy_protocol_failed,
    ),
    ("slow_clients_disconnected", "Clients cut off as they did not take their answers, or too slowly", |worker| {
        &worker.slow_clients_disconnected
    }),
    ("token_cache_hits", "Requests whose token was known", |worker| &worker.token_cache_hits),
    ("token_cache_misses", "Requests whose token had to be verified", |worker| &worker.token_cache_misses),
    ("upstream_connects", "Connections opened to upstreams", |worker| &worker.upstream_connects),
    ("upstream_retries", "Requests sent again on another connection", |worker| &worker.upstream_retries),
    ("streams_opened", "WebSockets, and answers and uploads that took more than a moment", |worker| {
        &worker.streams_opened
    }),
    ("streams_closed", "Those of them that are over", |worker| &worker.streams_closed),
    ("streams_drained", "Streams that were ended as the process was about to end", |worker| &worker.streams_drained),
    ("access_log_dropped", "Access log lines lost because the log could not keep up", |worker| {
        &worker.access_log_dropped
    }),
];

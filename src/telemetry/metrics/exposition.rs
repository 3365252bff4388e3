//! The text that Prometheus scrapes.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::count::Count;
use super::histogram::{Histogram, Totals};
use super::registry::Metrics;
use super::values::{Family, Single};
use super::worker::{STATUS_CLASSES, WorkerMetrics};
use super::{classic, limits};
use crate::types::reject::Reason;

impl Metrics {
    /// The text of `/metrics`, in the OpenMetrics format that Prometheus reads.
    pub fn render(self: &Arc<Self>) -> String {
        // Writing to a string does not fail.
        self.encode().unwrap_or_default()
    }

    /// The same for scrapers that do not read OpenMetrics.
    pub fn render_classic(self: &Arc<Self>) -> String {
        classic::from_openmetrics(&self.render())
    }

    fn encode(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut own = Registry::with_prefix("bearward");
        let mut of_process = Registry::default();
        own.register_collector(Box::new(MetricsCollector(self.clone())));
        of_process.register_collector(Box::new(ProcessCollector(self.clone())));
        let mut page = String::new();
        text::encode_registry(&mut page, &own)?;
        text::encode_registry(&mut page, &of_process)?;
        text::encode_eof(&mut page)?;
        Ok(page)
    }
}

/// The metrics with the names that Prometheus gives them.
struct ProcessCollector(Arc<Metrics>);

impl fmt::Debug for ProcessCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessCollector")
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.process.iter().try_for_each(|single| encode_single(&mut encoder, single))
    }
}

struct MetricsCollector(Arc<Metrics>);

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsCollector")
    }
}

impl Collector for MetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &*self.0;
        encode_requests(metrics, &mut encoder)?;
        for (name, help, counts) in BY_REASON {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for reason in Reason::ALL {
                let count = ConstCounter::new(metrics.sum(|worker| &counts(worker)[reason.index()]));
                count.encode(family.encode_family(&[("reason", reason.code())])?)?;
            }
        }
        encode_durations(metrics, &mut encoder)?;
        encode_limits(metrics, &mut encoder)?;
        let gauge = encoder.encode_descriptor("requests_in_flight", IN_FLIGHT, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(metrics.in_flight()).unwrap_or(i64::MAX)).encode(gauge)?;
        for (name, help, read) in COUNTERS {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(metrics.sum(read)).encode(encoder)?;
        }
        metrics.singles.iter().try_for_each(|single| encode_single(&mut encoder, single))?;
        metrics.families.iter().try_for_each(|family| encode_family(&mut encoder, family))
    }
}

fn encode_requests(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut family = encoder.encode_descriptor("requests", "Requests by status class", None, MetricType::Counter)?;
    for (class, label) in STATUS_CLASSES.into_iter().enumerate() {
        let count = ConstCounter::new(metrics.sum(|worker| &worker.requests[class]));
        count.encode(family.encode_family(&[("status", label)])?)?;
    }
    Ok(())
}

fn encode_durations(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, read) in DURATIONS {
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        encode_totals(encoder, &metrics.totals(*read))?;
    }
    for family in &metrics.histograms {
        let mut encoder = encoder.encode_descriptor(family.name, family.help, None, MetricType::Histogram)?;
        for (labels, totals) in (family.read)() {
            encode_totals(encoder.encode_family(&labels)?, &totals)?;
        }
    }
    Ok(())
}

fn encode_totals(mut encoder: MetricEncoder<'_>, totals: &Totals) -> fmt::Result {
    let sum = totals.micros as f64 / 1e6;
    encoder.encode_histogram::<NoLabelSet>(sum, totals.counts.iter().sum(), &totals.buckets(), None)
}

fn encode_limits(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "How often each limit of gateway.toml was hit";
    let mut family = encoder.encode_descriptor("limit_hits", help, None, MetricType::Counter)?;
    let (workers, admin) = metrics.workers_and_admin();
    for (limit, hits) in limits::names().zip(limits::hits(workers, admin)) {
        ConstCounter::new(hits).encode(family.encode_family(&[("limit", limit)])?)?;
    }
    Ok(())
}

fn encode_single(encoder: &mut DescriptorEncoder<'_>, single: &Single) -> fmt::Result {
    let encoder = encoder.encode_descriptor(single.name, single.help, None, single.kind)?;
    match single.kind {
        MetricType::Counter => ConstCounter::new((single.read)()).encode(encoder),
        _ => ConstGauge::new((single.read)()).encode(encoder),
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

const IN_FLIGHT: &str = "Requests without a finished response, and open WebSockets";

type ReadHistogram = fn(&WorkerMetrics) -> &Histogram;

const DURATIONS: &[(&str, &str, ReadHistogram)] = &[
    ("request_duration_seconds", "Time from the request header to the last byte of the response", |worker| {
        &worker.duration
    }),
    (
        "overhead_seconds",
        "Time from the request header to the response header, less the time that the backend took",
        |worker| &worker.overhead,
    ),
];

type ReadReasons = fn(&WorkerMetrics) -> &[Count];

const BY_REASON: &[(&str, &str, ReadReasons)] = &[
    ("rejections", "Rejected requests, by reason", |worker| &worker.rejections),
    (
        "observed",
        "Requests that were forwarded on a route in observe mode, by the reason for which other routes reject them",
        |worker| &worker.observations,
    ),
    (
        "streams_ended",
        "Streams and requests in flight that the gateway ended, by the reason for which their token is rejected",
        |worker| &worker.streams_ended,
    ),
];

type ReadCount = fn(&WorkerMetrics) -> &Count;

const COUNTERS: &[(&str, &str, ReadCount)] = &[
    ("connections_opened", "Accepted client connections", |worker| &worker.connections_opened),
    ("connections_closed", "Closed client connections", |worker| &worker.connections_closed),
    ("connections_rejected", "Client connections rejected by limits.connections", |worker| {
        &worker.connections_rejected
    }),
    (
        "address_connections_rejected",
        "Client connections rejected by limits.connections_per_address, or by limits.reserve_percent",
        |worker| &worker.address_connections_rejected,
    ),
    (
        "penalized_connections_rejected",
        "Client connections rejected because their address exceeded a limit shortly before",
        |worker| &worker.penalized_connections_rejected,
    ),
    ("idle_connections_closed", "Idle client connections closed to make room for others", |worker| {
        &worker.idle_connections_closed
    }),
    ("tls_handshakes_failed", "TLS handshakes that failed or timed out", |worker| &worker.handshakes_failed),
    (
        "proxy_protocol_failed",
        "Connections without a PROXY protocol header, or from a peer that is not trusted",
        |worker| &worker.proxy_protocol_failed,
    ),
    ("slow_clients_disconnected", "Clients disconnected because they read their response too slowly", |worker| {
        &worker.slow_clients_disconnected
    }),
    ("token_cache_hits", "Requests with a token from the cache", |worker| &worker.token_cache_hits),
    ("unproven_tokens", "Requests with a token that is bound to a key, on routes with proof = \"off\"", |worker| {
        &worker.unproven_tokens
    }),
    ("token_cache_misses", "Requests with a token that was not in the cache", |worker| &worker.token_cache_misses),
    ("upstream_connects", "Connections opened to upstreams", |worker| &worker.upstream_connects),
    ("upstream_retries", "Requests that failed at a server and were sent again, to it or to another one", |worker| {
        &worker.upstream_retries
    }),
    ("streams_opened", "WebSockets, and responses and uploads that took more than a moment", |worker| {
        &worker.streams_opened
    }),
    ("streams_closed", "Closed streams", |worker| &worker.streams_closed),
    ("streams_drained", "Streams that the gateway ended during a graceful shutdown", |worker| &worker.streams_drained),
    (
        "access_log_dropped",
        "Access log lines lost because the log could not keep up or could not be written",
        |worker| &worker.access_log_dropped,
    ),
    (
        "access_log_rejections_left_out",
        "Rejected requests and requests for public documents without an access log line",
        |worker| &worker.access_log_left_out,
    ),
];

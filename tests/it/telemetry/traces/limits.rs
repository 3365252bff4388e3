//! Limits of what is sampled and sent, and the cost of a collector that does not work.

use std::time::{Duration, Instant};

use bearward::config::{self, Probe};

use super::collector::{Collector, gateway, process, sent};
use crate::support::ports::ClosedPort;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn errors_are_kept_although_nothing_is_sampled() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"0%\"", "");
    for path in ["/", "/status/404", "/status/500", "/a/%00"] {
        gateway.client().get(path).await;
    }
    let spans = collector.wait_for(2).await;
    let paths: Vec<_> = spans.iter().map(|span| span["attributes"]["url.path"].as_str()).collect();
    assert_eq!(paths, [Some("/status/500"); 2]);
    assert!(spans.iter().all(|span| span["flags"] == 2), "the backend learned that it is not sampled");
    let sent = upstream.seen().into_iter().find(|seen| seen.target() == "/status/500").expect("it arrived");
    assert!(sent.header("traceparent").is_some_and(|sent| sent.ends_with("-02")));
}

#[tokio::test]
async fn the_limit_per_second_applies_to_all_requests() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"\nper_second = 2", "");
    let started = Instant::now();
    for _ in 0..100 {
        gateway.client().get("/").await;
    }
    let allowed = 2 + 2 * (started.elapsed().as_secs() as usize + 1);
    let sampled =
        upstream.seen().into_iter().filter(|seen| seen.header("traceparent").is_some_and(|sent| sent.ends_with("-03")));
    let sampled = sampled.count();
    assert!((2..=allowed).contains(&sampled), "{sampled} of at most {allowed}");
    assert_eq!(collector.wait_for(2 * sampled).await.len(), 2 * sampled);
    let dropped = gateway.metric("bearward_trace_dropped_total{reason=\"rate\"}").await;
    assert_eq!(dropped, (100 - sampled) as f64);
}

#[tokio::test]
async fn rejected_requests_leave_room_for_the_traces_of_others() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"\nper_second = 8", "");
    for _ in 0..40 {
        gateway.client().get("/a/%00").await.assert_rejected(400, "invalid_request");
    }
    for _ in 0..4 {
        gateway.client().get("/").await;
    }
    let seen = upstream.seen();
    let flags: Vec<_> = seen.iter().filter_map(|seen| seen.header("traceparent")?.get(52..)).collect();
    assert_eq!(flags, ["-03"; 4]);
}

/// The collector does not respond at all.
#[tokio::test]
async fn a_collector_that_hangs_costs_no_request_and_little_memory() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&["hang"]));
    let keys = "sample = \"100%\"\nper_second = 0\nqueue_size = \"64KiB\"";
    let mut gateway = gateway(&upstream, &collector, keys, "");
    while gateway.metric("bearward_trace_dropped_total{reason=\"queue\"}").await == 0.0 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    let waiting = gateway.metric("bearward_trace_waiting_bytes").await;
    assert!(waiting <= 65_536.0, "{waiting}");
    let started = Instant::now();
    gateway.drain();
    assert!(started.elapsed() < Duration::from_secs(8), "it waits 2 s for the collector: {:?}", started.elapsed());
}

#[tokio::test]
async fn spans_wait_for_a_collector_that_asks_for_it() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&["503", "429", "200"]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    gateway.client().get("/").await;
    assert_eq!(collector.wait_for(2).await.len(), 2);
    assert_eq!(collector.requests().len(), 3, "the same spans three times");
    sent(&gateway, 1.0).await;
}

#[tokio::test]
async fn spans_that_a_collector_rejects_are_dropped() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&["400", "200"]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    gateway.client().get("/first").await;
    crate::support::wait::eventually("it rejected the first", || collector.requests().len() == 1).await;
    gateway.client().get("/second").await;
    let spans = collector.wait_for(2).await;
    assert!(spans.iter().all(|span| span["attributes"]["url.path"] == "/second"), "{spans:?}");
    assert_eq!(gateway.metric("bearward_trace_dropped_total{reason=\"collector\"}").await, 1.0);
}

/// OTLP over HTTP: the client should honor `Retry-After`. Without it, the first retry comes within a second.
#[tokio::test]
async fn a_collector_says_when_to_try_again() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&["503+2", "200"]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    gateway.client().get("/").await;
    crate::support::wait::eventually("it rejected the first", || collector.requests().len() == 1).await;
    let rejected = Instant::now();
    collector.wait_for(2).await;
    assert!(rejected.elapsed() > Duration::from_millis(1_900), "{:?}", rejected.elapsed());
}

#[tokio::test]
async fn spans_of_a_partial_success_count_as_rejected() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&["200+partial", "200+partial", "200"]));
    let (_folder, gateway) = process(&upstream, &collector);
    let metric = async |name: &str| {
        let metrics = gateway.admin_client().get("/metrics").await.text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.expect("the metric").trim().parse::<f64>().expect("a number")
    };
    for number in 1..=3 {
        gateway.client().get("/").await;
        collector.wait_for(2 * number).await;
    }
    eventually_ok("the spans are accepted", async || {
        let sent = metric("bearward_trace_sent_total").await;
        if sent == 1.0 { Ok(()) } else { Err(sent.to_string()) }
    })
    .await;
    assert_eq!(metric("bearward_trace_dropped_total{reason=\"collector\"}").await, 2.0);
    gateway.program.signal("TERM");
    let (_, _, stderr) = gateway.program.wait();
    let reports: Vec<_> = stderr.lines().filter(|line| line.contains("over quota")).collect();
    let [report] = reports[..] else { panic!("once in a row: {stderr}") };
    assert!(report.contains(r"over quota\n\u{1b}[31mxxx") && report.contains("xxx…") && report.len() < 600, "{report}");
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
}

#[tokio::test]
async fn the_last_spans_are_sent_when_the_gateway_stops() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let mut gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    gateway.client().get("/").await;
    gateway.drain();
    assert_eq!(collector.wait_for(2).await.len(), 2);
    let closed = ClosedPort::new();
    let trace = format!("[trace]\nendpoint = \"http://{}/\"\nsample = \"100%\"\n", closed.address);
    let mut gateway = Gateway::public(upstream.address, &trace);
    assert_eq!(gateway.client().get("/").await.status, 200);
    gateway.drain();
}

#[tokio::test]
async fn a_reload_changes_the_size_of_the_texts() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    let format = gateway.configuration().lines().find(|line| line.starts_with("[access_log]")).expect("the table");
    let text = gateway.configuration().replace(format, &format!("{format}\nmax_field_size = \"64B\""));
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
    gateway.client().get(&format!("/{}", "a".repeat(100))).await;
    let spans = collector.wait_for(2).await;
    let longest = spans.iter().filter_map(|span| span["attributes"]["url.path"].as_str()).map(str::len).max();
    assert!(longest.is_some_and(|longest| longest <= 64 + '…'.len_utf8()), "{spans:?}");
}

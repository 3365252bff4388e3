//! `traceparent` and `tracestate`: from which peers they are believed, and what backends get.

use serde_json::Value;

use super::collector::{Collector, gateway};
use crate::support::upstream::ReceivedRequest;
use crate::support::{Gateway, Upstream};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRUSTED: &str = "[forwarding]\ntrusted = [\"127.0.0.0/8\"]\n";

async fn forwarded(gateway: &Gateway, upstream: &Upstream, fields: &[(&str, &str)]) -> ReceivedRequest {
    let client = fields.iter().fold(gateway.client(), |client, (name, value)| client.header(name, value));
    assert_eq!(client.get("/").await.status, 200);
    upstream.seen().pop().expect("it arrived")
}

#[tokio::test]
async fn the_trace_of_a_trusted_proxy_goes_on() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"0%\"\nerrors = false", TRUSTED);
    let unsampled = SAMPLED.replace("-01", "-00");
    let with_flags = |flags| SAMPLED.replace("-01", flags);
    let (random, reserved) = (with_flags("-02"), with_flags("-fc"));
    for (parent, flags) in [(SAMPLED, "-01"), (&unsampled, "-00"), (&random, "-02"), (&reserved, "-00")] {
        let seen = forwarded(&gateway, &upstream, &[("traceparent", parent), ("tracestate", "a=1,b=2")]).await;
        let sent = seen.header("traceparent").expect("it is set");
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with(flags) && sent != parent, "{sent}");
        assert_eq!(seen.header("tracestate"), Some("a=1,b=2"));
    }
    let spans = collector.wait_for(2).await;
    let server = spans.iter().find(|span| span["kind"] == "SPAN_KIND_SERVER").expect("a span");
    assert_eq!((server["traceId"].as_str(), server["parentSpanId"].as_str()), (Some(TRACE), Some("00f067aa0ba902b7")));
    assert_eq!(spans.len(), 2, "the other request is not sampled: {spans:?}");
    for invalid in [&SAMPLED.to_uppercase(), &SAMPLED.replace("00-", "ff-"), "x"] {
        let seen = forwarded(&gateway, &upstream, &[("traceparent", invalid), ("tracestate", "a=1")]).await;
        let sent = seen.header("traceparent").expect("it is set");
        assert!(!sent.contains(TRACE) && sent.len() == 55 && sent.ends_with("-02"), "{sent}");
        assert_eq!(seen.header("tracestate"), None, "it belongs to a trace that is not known");
    }
    let long = "a".repeat(513);
    let seen = forwarded(&gateway, &upstream, &[("traceparent", SAMPLED), ("tracestate", &long)]).await;
    assert_eq!((seen.header("tracestate"), seen.header("traceparent").map(str::len)), (None, Some(55)));
}

#[tokio::test]
async fn the_trace_of_a_client_is_not_believed() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"0%\"\nerrors = false", "");
    let mut traces = Vec::new();
    for _ in 0..3 {
        let seen = forwarded(&gateway, &upstream, &[("traceparent", SAMPLED), ("tracestate", "a=1")]).await;
        let values: Vec<_> = seen.headers.get_all("traceparent").iter().collect();
        let [sent] = values[..] else { panic!("{values:?}") };
        let sent = sent.to_str().expect("text").to_owned();
        assert!(!sent.contains(TRACE) && sent.ends_with("-02"), "{sent}");
        assert_eq!(seen.header("tracestate"), None);
        traces.push(sent[3..35].to_owned());
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 3, "each request has a trace of its own");
    let logged: Vec<Value> = gateway.log_lines(3).await.iter().map(|line| line["trace_id"].clone()).collect();
    assert!(logged.iter().all(|id| id.as_str().is_some_and(|id| traces.contains(&id.to_owned()))), "{logged:?}");
    assert!(collector.requests().is_empty());
}

/// A participant that continues a trace must not change its random flag.
#[tokio::test]
async fn the_random_flag_goes_on_and_is_in_the_spans() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", TRUSTED);
    let both = SAMPLED.replace("-01", "-03");
    for fields in [&[("traceparent", both.as_str())][..], &[]] {
        let seen = forwarded(&gateway, &upstream, fields).await;
        assert!(seen.header("traceparent").is_some_and(|sent| sent.ends_with("-03")), "{:?}", seen.headers);
    }
    let spans = collector.wait_for(4).await;
    assert!(spans.iter().all(|span| span["flags"] == 3), "{spans:#?}");
}

/// The backend begins its own trace then.
#[tokio::test]
async fn without_a_collector_only_trusted_traces_pass() {
    let upstream = Upstream::start();
    let fields = [("traceparent", SAMPLED), ("tracestate", "a=1")];
    let gateway = Gateway::public(upstream.address, "");
    let seen = forwarded(&gateway, &upstream, &fields).await;
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (None, None));
    let gateway = Gateway::public(upstream.address, TRUSTED);
    let seen = forwarded(&gateway, &upstream, &fields).await;
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(SAMPLED), Some("a=1")));
    assert!(gateway.log_lines(1).await[0].get("trace_id").is_none());
}

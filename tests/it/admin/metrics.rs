//! `/metrics`: the format, the counters and the documentation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use crate::gateway::provider_events::gateway_with_a_stream;
use crate::server::acme::gateway_without_authority;
use crate::support::certificates::Authority;
use crate::support::files::pages;
use crate::support::postgres::PostgresServer;
use crate::support::source;
use crate::support::tokens::Mint;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, OidcProvider, TestResponse, Upstream};

/// What Prometheus sends.
const ACCEPTED_BY_PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0,\
                                      application/openmetrics-text; version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5";

/// Returns every sample by its name and labels, as written. Panics at the first line that is not OpenMetrics.
fn samples(answer: &TestResponse) -> HashMap<String, f64> {
    let kind = answer.header("content-type").expect("a media type");
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    let page = answer.text();
    let (lines, end) = page.trim_end().rsplit_once('\n').expect("lines");
    assert_eq!(end, "# EOF");
    let mut kinds = HashMap::new();
    let mut samples = HashMap::new();
    for line in lines.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            match keyword {
                "HELP" => assert!(rest.len() > 5, "{line:?}"),
                "TYPE" => drop(kinds.insert(name.to_owned(), rest.to_owned())),
                _ => panic!("{line:?}"),
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let (name, labels) = sample.split_once('{').map_or((sample, ""), |(name, labels)| (name, labels));
        let has_prefix = ["bearward_", "process_"].iter().any(|prefix| name.starts_with(prefix));
        assert!(has_prefix && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line:?}");
        assert!(labels.is_empty() || labels.strip_suffix("\"}").is_some_and(are_labels), "{line:?}");
        let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
        let kind = suffixes.iter().find_map(|suffix| kinds.get(name.strip_suffix(suffix)?)).expect("a TYPE before it");
        assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{kind}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line:?}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
        // The clock of the database can be behind.
        let may_be_negative = sample == "bearward_store_clock_offset_seconds";
        assert!(value.is_finite() && (value >= 0.0 || may_be_negative), "{line:?}");
        assert!(samples.insert(sample.to_owned(), value).is_none(), "duplicate: {line:?}");
    }
    samples
}

/// Returns true if `labels`, the text in braces without the last quote, is a list of labels.
fn are_labels(labels: &str) -> bool {
    let is_one = |(name, value): (&str, &str)| {
        name.bytes().all(|b| b.is_ascii_lowercase()) && value.bytes().all(|b| b.is_ascii_graphic() && b != b'"')
    };
    labels.split("\",").all(|label| label.split_once("=\"").is_some_and(is_one))
}

async fn scrape(gateway: &Gateway) -> HashMap<String, f64> {
    let client = Client::http1(gateway.admin_address()).host("localhost");
    samples(&client.header("accept", ACCEPTED_BY_PROMETHEUS).get("/metrics").await)
}

/// Waits for counters. The gateway counts a request after its last byte is sent, so the client may see the end first.
async fn until_counted(gateway: &Gateway, wanted: &[(&str, f64)]) {
    eventually_ok("the counters have their values", async || {
        let seen = scrape(gateway).await;
        let are_reached = wanted.iter().all(|(name, value)| seen[&format!("bearward_{name}")] == *value);
        are_reached.then_some(()).ok_or_else(|| format!("expected {wanted:?}, found {seen:#?}"))
    })
    .await;
}

#[tokio::test]
async fn every_request_and_rejection_is_counted() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    until_counted(
        &gateway,
        &[
            ("requests_total{status=\"2xx\"}", 0.0),
            ("rejections_total{reason=\"no_token\"}", 0.0),
            ("revocations", 0.0),
        ],
    )
    .await;
    let pair = gateway.issue("alice", "").await;
    for _ in 0..3 {
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
    assert_eq!(gateway.client().bearer(&pair.access).get("/status/503").await.status, 503);
    gateway.client().get("/").await.assert_rejected(401, "unauthorized");
    gateway.refresh(&pair.access, "x").await.assert_rejected(400, "invalid_grant");
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
    until_counted(
        &gateway,
        &[
            ("requests_total{status=\"2xx\"}", 4.0),
            ("requests_total{status=\"4xx\"}", 3.0),
            ("requests_total{status=\"5xx\"}", 1.0),
            ("requests_total{status=\"client_closed\"}", 0.0),
            ("rejections_total{reason=\"no_token\"}", 1.0),
            ("rejections_total{reason=\"grant_malformed\"}", 1.0),
            ("rejections_total{reason=\"revoked\"}", 1.0),
            ("rejections_total{reason=\"upstream_broken\"}", 0.0),
            ("token_cache_misses_total", 1.0),
            ("token_cache_hits_total", 5.0),
            ("connections_opened_total", 8.0),
            ("connections_closed_total", 8.0),
            ("request_duration_seconds_count", 8.0),
            ("token_cache_entries", 1.0),
            ("revocation_sequence", 1.0),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_histogram_is_cumulative_up_to_infinity() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for _ in 0..20 {
        gateway.client().get("/").await.assert_rejected(401, "unauthorized");
    }
    until_counted(&gateway, &[("request_duration_seconds_count", 20.0)]).await;
    let samples = scrape(&gateway).await;
    let prefix = "bearward_request_duration_seconds_bucket{le=\"";
    let mut buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|(name, count)| {
            let bound = name.strip_prefix(prefix)?.strip_suffix("\"}")?;
            Some((bound.parse().expect("a number or +Inf"), *count))
        })
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, 20.0)));
    assert!(samples["bearward_request_duration_seconds_sum"] > 0.0);
}

/// Returns the texts between backticks.
fn code(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Returns every metric with its labels, from gateways that export all of them.
async fn shown() -> BTreeMap<String, BTreeSet<String>> {
    let upstream = Upstream::start();
    let store = format!("[store]\n{}", PostgresServer::shared().store_keys());
    let shared = Gateway::with_config(&upstream, &store);
    let gateway = Gateway::with_issuer(&upstream, &Mint::new(Algorithm::ES256), "");
    let with_stream = gateway_with_a_stream(&upstream);
    let authority = Authority::new();
    let list = authority.revocation_list(&[], gateway.now_secs() + 86_400);
    let with_list = Gateway::with_revocation_list(&upstream, &authority, &list, "");
    let mut shown: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let with_acme = gateway_without_authority(&upstream).await;
    let gateways = [&gateway, &shared, &with_stream, &with_list, &with_acme];
    let mut samples = Vec::new();
    for gateway in gateways {
        samples.push(scrape(gateway).await);
    }
    let samples = samples.into_iter().chain([scraped_with_keys(&upstream).await]);
    for sample in samples.flat_map(HashMap::into_keys) {
        let (name, labels) = sample.split_once('{').unwrap_or((&sample, ""));
        // The three kinds of samples of a histogram share its name.
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let name = of_histogram.filter(|name| name.ends_with("_seconds")).unwrap_or(name);
        let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
        shown.entry(name.to_owned()).or_default().extend(labels.map(|(label, _)| label.to_owned()));
    }
    shown
}

/// Of a gateway with a client and a provider, when it has the keys of both.
async fn scraped_with_keys(upstream: &Upstream) -> HashMap<String, f64> {
    let provider = OidcProvider::start(&json!({}));
    let issuer = &provider.issuer;
    let more = format!(
        "[oauth]\ntoken_endpoint = \"/oauth/token\"\n[[oauth.client]]\nclient_id = \"ci\"\n\
         jwks_url = \"{issuer}/jwks\"\nalgorithms = [\"RS256\"]\n\
         [[provider]]\nname = \"login\"\nissuer = \"{issuer}\"\nclient_id = \"a\"\nclient_auth = \"none\"\n"
    );
    let gateway = Gateway::with_config(upstream, &more);
    eventually_ok("it has the keys of both", async || {
        let samples = scrape(&gateway).await;
        let has = |name: &str| samples.keys().any(|sample| sample.starts_with(name));
        let both = has("bearward_client_keys_age_seconds") && has("bearward_provider_keys_age_seconds");
        if both { Ok(()) } else { Err(format!("{samples:?}")) }
    })
    .await;
    scrape(&gateway).await
}

/// monitoring.md has a row for each metric.
#[tokio::test]
async fn every_metric_is_documented_with_its_labels() {
    let page = source::read("deploy/monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n"));
    let rows = section.expect("a section of that name").lines().filter(|line| line.starts_with("| `"));
    let documented = rows.flat_map(|row| {
        let [_, name, labels, meaning] = row.splitn(4, '|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(meaning.len() > 10, "{row}");
        code(name).map(move |name| (name, code(labels).collect()))
    });
    assert_eq!(documented.collect::<BTreeMap<_, BTreeSet<_>>>(), shown().await);
}

#[tokio::test]
async fn every_metric_that_a_page_names_exists() {
    let shown = shown().await;
    let reference = ("gateway.toml".to_owned(), source::read("gateway.toml"));
    let mut count = 0;
    for (page, text) in pages().into_iter().chain([reference]) {
        let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        for name in words.filter(|word| word.len() > "bearward_".len() && word.starts_with("bearward_")) {
            assert!(shown.contains_key(name), "{page}: {name}");
            count += 1;
        }
    }
    assert!(count > 20, "the pages name only {count} metrics");
}

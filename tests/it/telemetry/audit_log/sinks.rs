//! The file and the webhook of the audit log, and what happens when they fail.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bearward::app;
use bearward::config::{self, Probe};
use bearward::types::secret;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::ports::free_address;
use crate::support::program::GatewayProcess;
use crate::support::upstream::ReceivedRequest;
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, TokenPair, Upstream};

pub(super) fn folder() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a folder"))
}

pub(super) fn start_in(folder: Arc<TempDir>, upstream: &Upstream, audit: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("[audit]\n{audit}\n"));
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

fn sequence(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

pub(super) fn waiting(gateway: &Gateway) -> u64 {
    let page = gateway.running().metrics.render();
    let line = page.lines().find_map(|line| line.strip_prefix("bearward_audit_waiting "));
    line.expect("the metric exists").parse::<f64>().expect("a number") as u64
}

pub(super) fn failures(gateway: &Gateway) -> u64 {
    let page = gateway.running().metrics.render();
    let line = page.lines().find_map(|line| line.strip_prefix("bearward_audit_failures_total "));
    line.expect("the metric exists").parse::<f64>().expect("a number") as u64
}

#[tokio::test]
async fn a_restart_appends_to_the_file_and_a_renamed_file_is_replaced() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    for round in 0..3 {
        gateway.issue("alice", "").await;
        // The gateway stops at once, and delivers the remaining events during the shutdown.
        gateway = gateway.restart();
        let events = gateway.audit_events(round + 3).await;
        assert_eq!(sequence(&events), (1..=round as u64 + 3).collect::<Vec<_>>());
    }
    let file = gateway.path().join("audit.jsonl");
    assert_eq!(std::fs::metadata(&file).expect("the file exists").permissions().mode() & 0o777, 0o640);
    std::fs::rename(&file, gateway.path().join("audit.jsonl.1")).expect("moved");
    gateway.issue("bob", "").await;
    assert_eq!(sequence(&gateway.audit_events(1).await), [6]);
}

/// Each acknowledged login has an event, each event occurs once, and no sequence number is missing.
#[tokio::test]
async fn nothing_is_lost_or_doubled_through_kill_9() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let mut issued = Vec::new();
    for round in 0..4 {
        let served = GatewayProcess::start(folder.path());
        for _ in 0..10 {
            let answer = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
            issued.push(TokenPair::from_json(&answer.json()).token_id);
        }
        // Each round kills at another moment of a delivery, so there is no condition to wait for.
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        served.program.kill();
    }
    let served = GatewayProcess::start(folder.path());
    served.program.signal("TERM");
    assert!(served.program.wait().0.success());
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).expect("the file exists");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("complete lines")).collect();
    assert_eq!(sequence(&events), (1..=42).collect::<Vec<_>>());
    let recorded: Vec<_> =
        events[2..].iter().map(|event| event["token_id"].as_str().expect("text").to_owned()).collect();
    assert_eq!(recorded, issued);
}

#[tokio::test]
async fn an_unwritable_file_delays_events_but_not_requests() {
    let upstream = Upstream::start();
    let folder = folder();
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).expect("made");
    let gateway = start_in(folder.clone(), &upstream, "file = \"logs/audit.jsonl\"");
    gateway.issue("alice", "").await;
    eventually("the first are delivered", || {
        std::fs::read_to_string(logs.join("audit.jsonl")).is_ok_and(|text| text.lines().count() == 3)
    })
    .await;
    std::fs::rename(&logs, folder.path().join("away")).expect("moved");
    let pair = gateway.issue("bob", "").await;
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
    eventually("a delivery fails", || failures(&gateway) > 0).await;
    assert_eq!(waiting(&gateway), 2);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200, "requests are served");

    std::fs::create_dir(&logs).expect("made");
    eventually("all are delivered", || {
        std::fs::read_to_string(logs.join("audit.jsonl")).is_ok_and(|text| text.lines().count() == 3)
    })
    .await;
    let text = std::fs::read_to_string(logs.join("audit.jsonl")).expect("read");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(sequence(&events), [4, 5, 6]);
    eventually("no event waits", || waiting(&gateway) == 0).await;
}

/// The events of all deliveries in the order of their first arrival, and how often each one arrived.
fn delivered(seen: &[ReceivedRequest]) -> (Vec<u64>, HashMap<u64, usize>) {
    let (mut order, mut times) = (Vec::new(), HashMap::new());
    for post in seen {
        assert_eq!((post.method.as_str(), post.header("content-type")), ("POST", Some("application/x-ndjson")));
        for line in str::from_utf8(&post.body).expect("text").lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            let seq = event["seq"].as_u64().expect("a number");
            let count = times.entry(seq).or_insert(0);
            *count += 1;
            if *count == 1 {
                order.push(seq);
            }
        }
    }
    (order, times)
}

#[tokio::test]
async fn a_webhook_gets_all_events_after_an_outage() {
    let upstream = Upstream::start();
    let folder = folder();
    secret::write_private(&folder.path().join("authorization"), b"Bearer collector-secret\n").expect("written");
    // No server listens at this address yet.
    let address = free_address();
    let audit = format!("webhook = \"http://{address}/events?a=b\"\nwebhook_authorization_file = \"authorization\"");
    let gateway = start_in(folder, &upstream, &audit);
    let pair = gateway.issue("alice", "").await;
    eventually("a delivery fails", || failures(&gateway) > 0).await;
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
    // Waiting events survive a restart.
    let gateway = gateway.restart();
    gateway.issue("bob", "").await;

    let collector = Upstream::at(&address.to_string());
    eventually("all are delivered", || delivered(&collector.seen()).0.len() == 5).await;
    eventually("no event waits", || waiting(&gateway) == 0).await;
    let (order, times) = delivered(&collector.seen());
    assert_eq!(order, [1, 2, 3, 4, 5]);
    assert!(times.values().all(|times| *times == 1), "accepted events are not sent again: {times:?}");
    let post = &collector.seen()[0];
    assert_eq!(
        (post.target().as_str(), post.header("authorization")),
        ("/events?a=b", Some("Bearer collector-secret"))
    );
    assert!(!gateway.path().join("audit.jsonl").exists());
}

#[tokio::test]
async fn only_2xx_counts_as_delivered() {
    let upstream = Upstream::start();
    const FAILURES: [&str; 4] =
        ["500 Internal Server Error", "301 Moved Permanently", "404 Not Found", "429 Too Many Requests"];
    let collector = ScriptedBackend::start(|mut wire, number| async move {
        wire.read_until("\r\n\r\n").await;
        wire.read_until("}\n").await;
        let status = FAILURES.get(number).unwrap_or(&"204 No Content");
        wire.send(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: /elsewhere\r\n\r\n")).await;
    });
    let gateway = start_in(folder(), &upstream, &format!("webhook = \"http://{}/\"", collector.address));
    eventually("the events are accepted", || collector.connections() > FAILURES.len()).await;
    eventually("no event waits", || waiting(&gateway) == 0).await;
    assert_eq!(failures(&gateway), FAILURES.len() as u64);
}

#[tokio::test]
async fn a_webhook_over_tls_needs_a_trusted_certificate() {
    let upstream = Upstream::start();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    // A gateway with a public route serves as the TLS server of the webhook.
    let collector = Upstream::start();
    let collecting = folder();
    std::fs::write(collecting.path().join("tls.pem"), cert.pem()).expect("written");
    secret::write_private(&collecting.path().join("tls.key"), signing_key.serialize_pem().as_bytes()).expect("written");
    let text = Gateway::public_config(collector.address, "")
        .replace("tls = \"self-signed\"", "tls = { certificate = \"tls.pem\", key = \"tls.key\" }");
    let front = Gateway::in_folder(text, collecting, Arc::new(ManualClock::new()));
    let url = format!("https://localhost:{}/", front.tls_address().port());

    let distrustful = start_in(folder(), &upstream, &format!("webhook = \"{url}\""));
    eventually("a delivery fails", || failures(&distrustful) > 0).await;
    assert!(collector.seen().is_empty());
    let trusting = folder();
    std::fs::write(trusting.path().join("ca.pem"), cert.pem()).expect("written");
    let trusting = start_in(trusting, &upstream, &format!("webhook = \"{url}\"\nwebhook_ca_file = \"ca.pem\""));
    eventually("the events are delivered", || collector.seen().len() == 1).await;
    assert_eq!(failures(&trusting), 0);
}

#[tokio::test]
async fn off_records_nothing() {
    let upstream = Upstream::start();
    let gateway = start_in(folder(), &upstream, "file = \"off\"");
    gateway.issue("alice", "").await;
    let store = &gateway.running().broker.store;
    assert_eq!(store.undelivered(10).await.expect("the store works"), []);
    assert!(!gateway.path().join("audit.jsonl").exists());
}

#[test]
fn an_unsuitable_file_fails_the_startup() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("notes"), "an operator's notes").expect("written");
    let text = Gateway::config_text("127.0.0.1:9", "[audit]\nfile = \"notes\"\n");
    let config = config::parse(&text, folder.path(), Probe::None).expect("a valid configuration");
    let error = app::start(config, Arc::new(ManualClock::new())).err().expect("it does not start");
    let error = bearward::types::reject::with_causes(&error);
    assert!(error.contains("notes") && error.contains("move it away"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes")).expect("read"), "an operator's notes");
}

//! Where events go, and what happens when they cannot.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bearward::app;
use bearward::config::{self, Probe};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::program::Served;
use crate::support::session::eventually;
use crate::support::upstream::Seen;
use crate::support::{Gateway, Pair, Scripted, Upstream};

fn folder() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a folder"))
}

fn start_in(folder: Arc<TempDir>, upstream: &Upstream, audit: &str) -> Gateway {
    let text = Gateway::text(&upstream.address.to_string(), &format!("[audit]\n{audit}\n"));
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

fn sequence(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

fn waiting(gateway: &Gateway) -> u64 {
    let page = gateway.running().metrics.render();
    let line = page.lines().find_map(|line| line.strip_prefix("bearward_audit_waiting "));
    line.expect("it is shown").parse::<f64>().expect("a number") as u64
}

fn failures(gateway: &Gateway) -> u64 {
    let page = gateway.running().metrics.render();
    let line = page.lines().find_map(|line| line.strip_prefix("bearward_audit_failures_total "));
    line.expect("it is shown").parse::<f64>().expect("a number") as u64
}

#[tokio::test]
async fn the_file_goes_on_where_it_was_after_a_restart_and_may_be_moved_away() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    for round in 0..3 {
        gateway.issue("alice", "").await;
        // Ended at once: what was not delivered by then is delivered at the end.
        gateway = gateway.restart();
        let events = gateway.audit(round + 3).await;
        assert_eq!(sequence(&events), (1..=round as u64 + 3).collect::<Vec<_>>());
    }
    let file = gateway.path().join("audit.jsonl");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o640);
    std::fs::rename(&file, gateway.path().join("audit.jsonl.1")).expect("moved");
    gateway.issue("bob", "").await;
    assert_eq!(sequence(&gateway.audit(1).await), [6]);
}

/// Every login that was answered is told of, every event once, and no number is missing.
#[tokio::test]
async fn nothing_is_lost_or_doubled_through_kill_9() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::text(&upstream.address.to_string(), "");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let mut issued = Vec::new();
    for round in 0..4 {
        let served = Served::start(folder.path());
        for _ in 0..10 {
            let answer = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
            issued.push(Pair::of(&answer.json()).token_id);
        }
        // At another moment of a delivery each time.
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        served.program.kill();
    }
    let served = Served::start(folder.path());
    served.program.signal("TERM");
    assert!(served.program.wait().0.success());
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).expect("it is there");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect();
    assert_eq!(sequence(&events), (1..=42).collect::<Vec<_>>());
    let told: Vec<_> = events[2..].iter().map(|event| event["token_id"].as_str().expect("text").to_owned()).collect();
    assert_eq!(told, issued);
}

#[tokio::test]
async fn while_the_file_cannot_be_written_events_wait_and_requests_do_not() {
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
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200, "everything goes on");

    std::fs::create_dir(&logs).expect("made");
    eventually("all are delivered", || {
        std::fs::read_to_string(logs.join("audit.jsonl")).is_ok_and(|text| text.lines().count() == 3)
    })
    .await;
    let text = std::fs::read_to_string(logs.join("audit.jsonl")).expect("read");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(sequence(&events), [4, 5, 6]);
    eventually("none waits", || waiting(&gateway) == 0).await;
}

/// The events of all deliveries, in the order in which they came first.
fn delivered(seen: &[Seen]) -> (Vec<u64>, HashMap<u64, usize>) {
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
async fn a_webhook_that_is_down_gets_everything_when_it_is_back() {
    let upstream = Upstream::start();
    let folder = folder();
    std::fs::write(folder.path().join("authorization"), "Bearer collector-secret\n").expect("written");
    // Nobody listens there yet.
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let audit = format!("webhook = \"http://{address}/events?a=b\"\nwebhook_authorization_file = \"authorization\"");
    let gateway = start_in(folder, &upstream, &audit);
    let pair = gateway.issue("alice", "").await;
    eventually("a delivery fails", || failures(&gateway) > 0).await;
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
    // What waits survives a restart.
    let gateway = gateway.restart();
    gateway.issue("bob", "").await;

    let collector = Upstream::at(&address.to_string());
    eventually("all are delivered", || delivered(&collector.seen()).0.len() == 5).await;
    eventually("none waits", || waiting(&gateway) == 0).await;
    let (order, times) = delivered(&collector.seen());
    assert_eq!(order, [1, 2, 3, 4, 5]);
    assert!(times.values().all(|times| *times == 1), "what was taken is not sent again: {times:?}");
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
    const REFUSALS: [&str; 4] =
        ["500 Internal Server Error", "301 Moved Permanently", "404 Not Found", "429 Too Many Requests"];
    let collector = Scripted::start(|mut wire, number| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.hear_until("}\n").await;
        let status = REFUSALS.get(number).unwrap_or(&"204 No Content");
        wire.say(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: /elsewhere\r\n\r\n")).await;
    });
    let gateway = start_in(folder(), &upstream, &format!("webhook = \"http://{}/\"", collector.address));
    eventually("it is taken", || collector.connections() > REFUSALS.len()).await;
    eventually("none waits", || waiting(&gateway) == 0).await;
    assert_eq!(failures(&gateway), REFUSALS.len() as u64);
}

#[tokio::test]
async fn a_webhook_is_spoken_to_by_tls_and_only_if_its_certificate_is_trusted() {
    let upstream = Upstream::start();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    // A gateway that asks nobody for a token is a server with a certificate like any other.
    let collector = Upstream::start();
    let collecting = folder();
    std::fs::write(collecting.path().join("tls.pem"), cert.pem()).expect("written");
    std::fs::write(collecting.path().join("tls.key"), signing_key.serialize_pem()).expect("written");
    let text = Gateway::open_text(collector.address, "")
        .replace("tls = \"self-signed\"", "tls = { certificate = \"tls.pem\", key = \"tls.key\" }");
    let front = Gateway::in_folder(text, collecting, Arc::new(ManualClock::new()));
    let url = format!("https://localhost:{}/", front.tls_address().port());

    let distrustful = start_in(folder(), &upstream, &format!("webhook = \"{url}\""));
    eventually("a delivery fails", || failures(&distrustful) > 0).await;
    assert!(collector.seen().is_empty());
    let trusting = folder();
    std::fs::write(trusting.path().join("ca.pem"), cert.pem()).expect("written");
    let trusting = start_in(trusting, &upstream, &format!("webhook = \"{url}\"\nwebhook_ca_file = \"ca.pem\""));
    eventually("it is delivered", || collector.seen().len() == 1).await;
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
fn a_file_that_cannot_be_written_is_known_at_the_start() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("notes"), "somebody's notes").expect("written");
    let text = Gateway::text("127.0.0.1:9", "[audit]\nfile = \"notes\"\n");
    let config = config::parse(&text, folder.path(), Probe::None).expect("nothing is wrong with it");
    let error = app::start(config, Arc::new(ManualClock::new())).err().expect("it does not start");
    let error = bearward::types::reject::with_causes(&error);
    assert!(error.contains("notes") && error.contains("move it away"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes")).expect("read"), "somebody's notes");
}

//! Limits, timeouts, throttles and the access log after a reload.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::config::{self, Config, Probe};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::{Gateway, Upstream};

fn parse(folder: &Path, text: &str) -> Config {
    config::parse(text, folder, Probe::None).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Reloads with this text. Nothing may require a restart.
fn reload(gateway: &Gateway, text: &str) {
    let reloaded = gateway.running().reload(parse(gateway.path(), text)).expect("it reloads");
    assert_eq!(reloaded.requires_restart, Vec::<&str>::new());
}

/// Another valid value of the same kind.
fn other(value: &Value) -> Option<String> {
    let text = value.as_str().unwrap_or_default();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    match (value.as_u64(), number) {
        (Some(number), _) => Some((number + 1).to_string()),
        (None, Some(number)) if ["ms", "s", "m", "h", "B", "KiB", "MiB"].contains(&unit) => {
            Some(format!("\"{}{unit}\"", number + 1))
        }
        _ => None,
    }
}

/// What `check --effective` and the page say about each key is what a reload does.
#[test]
fn each_key_is_reloadable_as_it_is_listed() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.clone());
    let current = gateway.config();
    let tables = ["limits", "timeouts", "throttle", "access_log", "admin", "tokens", "store", "audit", "upstream[0]"];
    let values = current.values.json();
    let mut counts = [0, 0];
    for setting in values["settings"].as_array().expect("a list") {
        let key = setting["key"].as_str().expect("a key");
        let Some((table, name)) = key.split_once('.').filter(|(table, _)| tables.contains(table)) else { continue };
        let Some(value) = setting.get("value").and_then(other).filter(|_| !name.contains('.')) else { continue };
        let header = if table == "upstream[0]" { "[[upstream]]".to_owned() } else { format!("[{table}]") };
        let line = format!("{name} = {value}\n");
        let without: String = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{name} = ")))
            .map(|line| format!("{line}\n"))
            .collect();
        let changed = if without.contains(&format!("{header}\n")) {
            without.replacen(&format!("{header}\n"), &format!("{header}\n{line}"), 1)
        } else {
            format!("{without}{header}\n{line}")
        };
        let Ok(next) = config::parse(&changed, gateway.path(), Probe::None) else { continue };
        let changes = current.values.changes(&next.values, false);
        assert!(changes.iter().any(|change| change.key == key), "{key}: {changes:?}\n{changed}");
        let reloaded = gateway.running().reload(next).expect("it reloads");
        let is_reloadable = setting["reloadable"] == true;
        assert_eq!(reloaded.requires_restart.is_empty(), is_reloadable, "{key}: {reloaded:?}");
        assert_eq!(reloaded.active.is_empty(), !is_reloadable, "{key}: {reloaded:?}");
        gateway.running().reload(current.clone()).expect("it reloads");
        counts[usize::from(is_reloadable)] += 1;
    }
    assert!(counts[0] > 20 && counts[1] > 25, "{counts:?}");
}

#[tokio::test]
async fn sizes_apply_to_the_next_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let client = gateway.client();
    let long = format!("/{}", "a".repeat(300));
    assert_eq!(client.get(&long).await.status, 200);
    let limited = format!("{}\n[limits]\nuri_size = \"256B\"\nbody_size = \"10B\"\n", gateway.configuration());
    reload(&gateway, &limited);
    client.get(&long).await.assert_rejected(414, "invalid_request");
    assert_eq!(client.send(http::Method::POST, "/", "x".repeat(11).into()).await.status, 413);
    reload(&gateway, gateway.configuration());
    assert_eq!(client.get(&long).await.status, 200);
    assert_eq!(client.send(http::Method::POST, "/", "x".repeat(11).into()).await.status, 200);
}

#[tokio::test]
async fn timeouts_apply_to_the_next_connection() {
    use tokio::io::AsyncReadExt;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nrequest_header = \"1h\"\n");
    let text = gateway.configuration().replace("request_header = \"1h\"", "request_header = \"50ms\"");
    let mut before = tokio::net::TcpStream::connect(gateway.address()).await.expect("connected");
    // The gateway has accepted it when it responds.
    tokio::io::AsyncWriteExt::write_all(&mut before, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    let mut head = [0; 1];
    before.read_exact(&mut head).await.expect("a response");
    reload(&gateway, &text);
    let mut after = tokio::net::TcpStream::connect(gateway.address()).await.expect("connected");
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), after.read_to_end(&mut rest))
        .await
        .expect("it is closed")
        .expect("read");
    // The earlier connection has its own time.
    tokio::io::AsyncWriteExt::write_all(&mut before, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    let mut both = Vec::new();
    while both.windows(4).filter(|part| part == b"200 ").count() < 1 {
        assert!(before.read_buf(&mut both).await.expect("read") > 0, "{both:?}");
    }
}

#[tokio::test]
async fn a_changed_throttle_starts_again_and_the_others_keep_their_count() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 2\nfailures = 1", "");
    let pair = gateway.issue("alice", "").await;
    let refresh = async || {
        gateway.client().bearer(&pair.access).post("/user/refresh", &serde_json::json!({ "refreshToken": "x" })).await
    };
    let statuses = [refresh().await.status.as_u16(), refresh().await.status.as_u16(), refresh().await.status.as_u16()];
    assert_eq!(statuses[2], 429, "{statuses:?}");
    reload(&gateway, &gateway.configuration().replace("failures = 1", "failures = 2"));
    assert_eq!(refresh().await.status, 429, "the count of calls stays");
    reload(&gateway, &gateway.configuration().replace("calls = 2", "calls = 3"));
    assert_ne!(refresh().await.status, 429, "the new limit starts with its burst");
}

#[tokio::test]
async fn the_access_log_changes_its_format_and_limits() {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let upstream = Upstream::start();
    let file = folder.path().join("access.log");
    let text = Gateway::public_config(upstream.address, "")
        .replace("file = \"access.log\"\n", "file = \"access.log\"\nmax_field_size = \"64B\"\n");
    let mut gateway = Gateway::in_folder(text.clone(), folder.clone(), Arc::new(ManualClock::new()));
    let long = format!("/{}", "a".repeat(100));
    assert_eq!(gateway.client().get(&long).await.status, 200);
    reload(&gateway, &text.replace("max_field_size = \"64B\"", "max_field_size = \"512B\"\nformat = \"text\""));
    assert_eq!(gateway.client().get(&long).await.status, 200);
    gateway.drain();
    let lines = fs::read_to_string(&file).expect("written");
    // Two workers may write their lines in another order.
    let (json, plain): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with('{'));
    let ([cut], [whole]) = (&json[..], &plain[..]) else { panic!("{lines}") };
    assert!(!cut.contains(&long) && whole.contains(&long), "{lines}");
}

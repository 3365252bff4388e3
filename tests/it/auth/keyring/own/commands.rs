//! `bearward keys`, the events of a key's life, and a key that the operator brings.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::support::program::{GatewayProcess, bearward};

fn served(upstream: &Upstream) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(folder.path().join("gateway.toml"), &text).expect("written");
    let served = GatewayProcess::start(folder.path());
    let admin = format!("[admin]\naddress = \"{}\"", served.admin);
    let named = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &admin);
    fs::write(folder.path().join("gateway.toml"), named).expect("written");
    (served, folder)
}

/// The keys that this event was told of, once it was told of one.
fn keys_with(folder: &TempDir, event: &str) -> Vec<String> {
    let started = Instant::now();
    loop {
        let text = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = events.filter(|told| told["event"] == event);
        let kids: Vec<_> = told.map(|told| told["kid"].as_str().expect("a kid").to_owned()).collect();
        if !kids.is_empty() {
            return kids;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no {event} in\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn keys_are_listed_rotated_and_revoked_and_each_step_is_an_event() {
    let upstream = Upstream::start();
    let (_served, folder) = served(&upstream);
    let run = |arguments: &[&str]| {
        let output = bearward(folder.path(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let table = run(&["keys", "list"]);
    let [titles, row, next] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    assert!(titles.starts_with("kid ") && row.contains("ES256") && row.contains("active"), "{table}");
    assert!(next.starts_with("the next key signs from 20"), "{table}");
    let first = row.split_whitespace().next().expect("the kid").to_owned();

    assert!(run(&["keys", "rotate"]).contains("pending"));
    let rotated: Value = serde_json::from_str(&run(&["keys", "rotate", "--now", "--json"])).expect("JSON");
    assert_eq!(states(rotated["keys"].as_array().expect("a list")), ["active", "retired"]);
    assert!(run(&["keys", "revoke", &first]).contains("revoked"));
    for event in ["key.revoked", "key.retired"] {
        assert_eq!(keys_with(&folder, event), [&*first]);
    }
    let created = keys_with(&folder, "key.created");
    assert_eq!(keys_with(&folder, "key.activated"), created[..2]);

    let refused = |arguments: &[&str], status: i32, says: &str| {
        let output = bearward(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && said.contains(says), "{said}");
    };
    refused(&["keys", "revoke", "unknown"], 1, "no such signing key");
    refused(&["keys", "revoke", "a/b"], 2, "is not a kid");
    refused(&["keys", "rotate", "--root", "--now"], 2, "cannot be used with");
}

/// An emergency does not wait until the rest of the file is right.
#[test]
fn a_key_is_revoked_whatever_else_is_wrong_with_the_configuration() {
    let upstream = Upstream::start();
    let (_served, folder) = served(&upstream);
    let file = folder.path().join("gateway.toml");
    let text = fs::read_to_string(&file).expect("there");
    let issuer = "[[issuer]]\nissuer = \"https://login.example\"\njwks_file = \"gone.json\"\nno_such_key = 1\n";
    fs::write(&file, format!("{text}\n{issuer}")).expect("written");
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    assert_eq!(run(&["check"]).status.code(), Some(2), "the file is wrong");
    let list = run(&["keys", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let kid = list["keys"][0]["kid"].as_str().expect("text");
    for command in [&["keys", "revoke", kid][..], &["keys", "rotate"], &["token", "revoke", "--all"]] {
        let output = run(command);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(&file, text.replace("[admin]\n", "[admin]\ntoken = \"x\"\n")).expect("written");
    let output = run(&["keys", "list"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("admin.token"), "{said}");
}

/// Another algorithm, and back before it ever signed.
#[test]
fn the_end_of_a_key_is_an_event() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(&file, &text).expect("written");
    GatewayProcess::start(folder.path()).program.kill();
    fs::write(&file, text.replace("[tokens]\n", "[tokens]\nalgorithm = \"EdDSA\"\n")).expect("written");
    let served = GatewayProcess::start(folder.path());
    served.program.signal("TERM");
    assert!(served.program.wait().0.success(), "it delivers what it has");
    let created = keys_with(&folder, "key.created");
    assert_eq!(created.len(), 2, "one of each algorithm");
    fs::write(&file, text).expect("written");
    let _served = GatewayProcess::start(folder.path());
    assert_eq!(keys_with(&folder, "key.deleted"), created[1..]);
}

#[tokio::test]
async fn a_key_of_the_operators_own_is_not_rotated_and_says_so() {
    let upstream = Upstream::start();
    let folder = std::sync::Arc::new(TempDir::new().expect("a folder"));
    let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    fs::write(folder.path().join("signing.pem"), made.serialize_pem()).expect("written");
    let text = Gateway::config_text(&upstream.address.to_string(), "")
        .replace("[tokens]\n", "[tokens]\nsigning_key_file = \"signing.pem\"\n");
    fs::write(folder.path().join("gateway.toml"), &text).expect("written");
    let program = GatewayProcess::start(folder.path());
    program.program.wait_for_stderr("tokens.signing_key_file signs; it is not rotated");
    program.program.kill();

    let clock = std::sync::Arc::new(crate::support::clock::ManualClock::new());
    let gateway = Gateway::in_folder(text, folder, clock);
    let kid = kid_of(&gateway.issue("alice", "").await.access);
    gateway.advance(DAY * 365);
    let admin = gateway.admin_client();
    let response = admin.get("/admin/v1/keys").await.json();
    assert_eq!(response, json!({ "keys": [{ "kid": kid, "algorithm": "ES256", "state": "active" }] }));
    for path in ["/admin/v1/keys/rotate".to_owned(), format!("/admin/v1/keys/{kid}/revoke")] {
        let response = admin.post(&path, &json!({})).await;
        response.assert_rejected(400, "invalid_request");
        assert!(response.json()["error_description"].as_str().is_some_and(|text| text.contains("signing_key_file")));
    }
    assert_eq!(published(&gateway).await, [kid]);
    let metrics = admin.get("/metrics").await.text();
    assert!(!metrics.contains("signing_key_rotation"), "nothing is due");
}

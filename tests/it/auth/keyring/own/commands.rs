//! The command `bearward keys`, the audit events of keys, and a signing key in a file of the operator.

use std::fs;

use bearward::types::secret;
use tempfile::TempDir;

use super::*;
use crate::support::program::{GatewayProcess, bearward};

fn start(upstream: &Upstream) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(folder.path().join("gateway.toml"), &text).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let admin = format!("[admin]\naddress = \"{}\"", gateway.admin);
    let with_address = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &admin);
    fs::write(folder.path().join("gateway.toml"), with_address).expect("written");
    (gateway, folder)
}

/// Waits until the audit log has this event. Returns the keys of all such events.
async fn keys_with(folder: &TempDir, event: &str) -> Vec<String> {
    eventually_within(TIMEOUT, &format!("the audit log has {event}"), async || {
        let text = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let matching = events.filter(|found| found["event"] == event);
        let kids: Vec<_> = matching.map(|found| found["kid"].as_str().expect("a kid").to_owned()).collect();
        if kids.is_empty() { Err(text) } else { Ok(kids) }
    })
    .await
}

#[tokio::test]
async fn commands_list_rotate_and_revoke_keys_with_audit_events() {
    let upstream = Upstream::start();
    let (_gateway, folder) = start(&upstream);
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
        assert_eq!(keys_with(&folder, event).await, [&*first]);
    }
    let created = keys_with(&folder, "key.created").await;
    assert_eq!(keys_with(&folder, "key.activated").await, created[..2]);

    let fails = |arguments: &[&str], status: i32, message: &str| {
        let output = bearward(folder.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && stderr.contains(message), "{stderr}");
    };
    fails(&["keys", "revoke", &first, "--may-refresh"], 1, "revoked for good, which cannot be undone");
    assert!(run(&["keys", "list"]).lines().any(|row| row.starts_with(&first) && row.ends_with("Z, for good")));
    let second = created.iter().find(|kid| **kid != first).expect("another key");
    assert!(run(&["keys", "revoke", second, "--may-refresh"]).contains("Z, its tokens may refresh"));
    fails(&["keys", "revoke", "unknown"], 1, "no such signing key");
    fails(&["keys", "revoke", "a/b"], 2, "is not a kid");
    fails(&["keys", "rotate", "--root", "--now"], 2, "cannot be used with");
}

/// In an emergency the operator must be able to revoke a key, even if the configuration has errors.
#[test]
fn keys_can_be_revoked_with_an_invalid_configuration() {
    let upstream = Upstream::start();
    let (_gateway, folder) = start(&upstream);
    let file = folder.path().join("gateway.toml");
    let text = fs::read_to_string(&file).expect("read");
    let issuer = "[[issuer]]\nissuer = \"https://login.example\"\njwks_file = \"gone.json\"\nno_such_key = 1\n";
    fs::write(&file, format!("{text}\n{issuer}")).expect("written");
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    assert_eq!(run(&["check"]).status.code(), Some(2), "the file is invalid");
    let list = run(&["keys", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let kid = list["keys"][0]["kid"].as_str().expect("text");
    for command in [&["keys", "revoke", kid][..], &["keys", "rotate"], &["token", "revoke", "--all"]] {
        let output = run(command);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(&file, text.replace("[admin]\n", "[admin]\nsocket = 7\n")).expect("written");
    let output = run(&["keys", "list"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && stderr.contains("admin.socket"), "{stderr}");
}

/// The algorithm changes and changes back, so the key of the second one is deleted before it signs.
#[tokio::test]
async fn deleting_a_key_is_an_audit_event() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(&file, &text).expect("written");
    GatewayProcess::start(folder.path()).program.kill();
    fs::write(&file, text.replace("[tokens]\n", "[tokens]\nalgorithm = \"EdDSA\"\n")).expect("written");
    let served = GatewayProcess::start(folder.path());
    served.program.signal("TERM");
    assert!(served.program.wait().0.success(), "it writes all events before it exits");
    let created = keys_with(&folder, "key.created").await;
    assert_eq!(created.len(), 2, "one for each algorithm");
    fs::write(&file, text).expect("written");
    let _served = GatewayProcess::start(folder.path());
    assert_eq!(keys_with(&folder, "key.deleted").await, created[1..]);
}

#[tokio::test]
async fn the_gateway_does_not_rotate_a_key_in_a_file() {
    let upstream = Upstream::start();
    let folder = std::sync::Arc::new(TempDir::new().expect("a folder"));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    secret::write_private(&folder.path().join("signing.pem"), key.serialize_pem().as_bytes()).expect("written");
    let text = Gateway::config_text(&upstream.address.to_string(), "")
        .replace("[tokens]\n", "[tokens]\nsigning_key_file = \"signing.pem\"\n");
    fs::write(folder.path().join("gateway.toml"), &text).expect("written");
    let program = GatewayProcess::start(folder.path());
    program.program.wait_for_stderr("tokens.signing_key_file signs; the operator rotates it");
    program.program.kill();

    let clock = std::sync::Arc::new(crate::support::clock::ManualClock::new());
    let gateway = Gateway::in_folder(text, folder, clock);
    let kid = kid_of(&gateway.issue("alice", "").await.access);
    gateway.advance(DAY * 365);
    let admin = gateway.admin_client();
    let response = admin.get("/admin/v1/keys").await.json();
    let [key] = &response["keys"].as_array().expect("a list")[..] else { panic!("{response}") };
    assert_eq!((&key["kid"], &key["algorithm"], &key["state"]), (&json!(kid), &json!("ES256"), &json!("active")));
    assert!(key.get("nextStepAt").is_none() && response.get("nextRotation").is_none(), "{response}");
    for path in ["/admin/v1/keys/rotate".to_owned(), format!("/admin/v1/keys/{kid}/revoke")] {
        let response = admin.post(&path, &json!({})).await;
        response.assert_rejected(400, "invalid_request");
        assert!(response.json()["error_description"].as_str().is_some_and(|text| text.contains("signing_key_file")));
    }
    assert_eq!(published(&gateway).await, [kid]);
    let metrics = admin.get("/metrics").await.text();
    assert!(!metrics.contains("signing_key_rotation"), "no rotation is scheduled");
}

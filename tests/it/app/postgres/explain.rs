//! `bearward explain` beside gateways that use PostgreSQL.

use std::sync::Arc;

use super::{folder, gateway, store_keys};
use crate::support::Upstream;
use crate::support::clock::ManualClock;
use crate::support::program::bearward_with_stdin;

#[tokio::test]
async fn explain_reads_revocations_and_keys_from_the_database() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let running = gateway(&upstream, &keys, &files, &clock);
    let (alice, bob) = (running.issue("alice", "").await, running.issue("bob", "").await);
    assert_eq!(running.revoke(&bob.access, &bob.token_id).await.status, 200);
    let explain = |configuration: &str, token: &str| {
        std::fs::write(files.path().join("gateway.toml"), configuration).expect("written");
        let output = bearward_with_stdin(files.path(), &["explain", "--token-stdin"], token);
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join("\n");
        (output.status.code(), text)
    };
    let configuration = running.configuration();
    let (status, text) = explain(configuration, &alice.access);
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = explain(configuration, &bob.access);
    assert!(status == Some(1) && text.contains("revoked"), "{text}");
    let empty = configuration.replace("schema = \"t_", "schema = \"u_");
    assert_ne!(explain(&empty, &alice.access).0, Some(0), "it does not guess");
    std::fs::write(files.path().join("gateway.toml"), configuration).expect("written");
    let path = format!("/token/{}", alice.token_id);
    let arguments = ["explain", "--method", "DELETE", "--path", &path, "--token-stdin"];
    let output = bearward_with_stdin(files.path(), &arguments, &alice.access);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("revokes session {}", alice.token_id)), "{text}");
}

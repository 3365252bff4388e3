//! Keys in the database: restarts, crashes, and keys or root secrets that were changed.

use std::fs;
use std::path::Path;

use bearward::types::secret::write_private;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::support::TokenPair;
use crate::support::program::{GatewayProcess, Program, bearward};

fn folder_with_gateway(upstream: &Upstream) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    folder
}

async fn issue(gateway: &GatewayProcess, subject: &str) -> TokenPair {
    TokenPair::from_json(&gateway.admin_client().post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
}

/// Asserts that a start in this folder fails. Returns what it writes to standard error.
fn failed_start(folder: &Path) -> String {
    let (status, _, stderr) = Program::start(folder, &["serve"]).wait();
    assert_eq!(status.code(), Some(1), "{stderr}");
    stderr
}

/// The newest root secret that seals a key.
fn root_of(folder: &Path) -> i64 {
    let database = Connection::open(folder.join("bearward.db")).expect("opened");
    database
        .query_row("select max(root) from signing_keys where retired_at is null", [], |row| row.get(0))
        .expect("a row")
}

#[tokio::test]
async fn a_restart_keeps_every_key() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let old = gateway.issue("alice", "").await;
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let new = gateway.issue("alice", "").await;
    assert_eq!(gateway.admin_client().post("/admin/v1/keys/rotate", &json!({})).await.status, 200);
    let (before, published_before) = (listed(&gateway.admin_client()).await, published(&gateway).await);
    let gateway = gateway.restart();
    assert_eq!(listed(&gateway.admin_client()).await, before);
    assert_eq!(published(&gateway).await, published_before);
    for pair in [&old, &new] {
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
    assert_eq!(kid_of(&gateway.issue("alice", "").await.access), kid_of(&new.access));
}

/// `kill -9` during rotations: the keys are those before or after a rotation.
#[tokio::test]
async fn a_crash_during_rotations_keeps_a_complete_key_set() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let mut gateway = GatewayProcess::start(folder.path());
    let mut pairs = Vec::new();
    for round in 0..4_u64 {
        let admin = gateway.admin_client();
        let rotating = tokio::spawn(async move {
            loop {
                rotate_now(&admin).await;
            }
        });
        for _ in 0..3 {
            pairs.push(issue(&gateway, "alice").await);
        }
        // A different time of the crash in each round.
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        gateway.program.kill();
        rotating.abort();

        gateway = GatewayProcess::start(folder.path());
        let keys = listed(&gateway.admin_client()).await;
        assert_eq!(count(&keys, "active"), 1, "{keys:?}");
        for pair in &pairs {
            assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200, "round {round}");
        }
    }
    let body = json!({ "refreshToken": pairs[0].refresh });
    assert_eq!(gateway.client().bearer(&pairs[0].access).post("/user/refresh", &body).await.status, 200);
}

#[tokio::test]
async fn a_start_with_another_root_secret_fails_with_a_reason() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let gateway = GatewayProcess::start(folder.path());
    let pair = issue(&gateway, "alice").await;
    gateway.program.kill();
    let secret = folder.path().join("bearward.secret");
    let original = fs::read_to_string(&secret).expect("created at the start");

    fs::write(&secret, format!("1 {}\n", "0".repeat(43))).expect("written");
    let message = failed_start(folder.path());
    assert!(message.contains("under another root secret 1") && message.contains("store.secret_file"), "{message}");
    fs::write(&secret, original.replacen('1', "2", 1)).expect("written");
    let message = failed_start(folder.path());
    assert!(message.contains("sealed under root secret 1, which is missing"), "{message}");

    fs::write(&secret, &original).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200, "the failed starts changed nothing");
}

/// A new root secret for an old database would hide that the old one is lost.
#[tokio::test]
async fn a_start_without_its_root_secret_creates_no_new_one() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let gateway = GatewayProcess::start(folder.path());
    let pair = issue(&gateway, "alice").await;
    gateway.program.kill();
    let [secret, token] = ["bearward.secret", "admin.token"].map(|name| folder.path().join(name));
    let kept = fs::read_to_string(&secret).expect("created at the start");
    for file in [&secret, &token] {
        fs::remove_file(file).expect("removed");
    }

    let message = failed_start(folder.path());
    for part in
        ["store.secret_file", "bearward.secret does not exist", "its backup", "bearward.db with its -wal and -shm"]
    {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert!(!secret.exists() && !token.exists(), "no file is created");

    write_private(&secret, kept.as_bytes()).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200);
}

/// The message must not blame a missing root secret.
#[test]
fn a_file_that_is_not_a_database_is_reported() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let database = folder.path().join("bearward.db");
    write_private(&database, "the contents of another file. ".repeat(100).as_bytes()).expect("written");
    let message = failed_start(folder.path());
    assert!(message.contains("store.sqlite") && message.contains("not an SQLite database"), "{message}");
    assert!(!message.contains("bearward.secret") && !folder.path().join("bearward.secret").exists(), "{message}");
}

#[tokio::test]
async fn a_start_fails_if_a_key_was_changed_in_the_database() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    gateway.program.kill();
    let change = |sql: &str| {
        let database = Connection::open(folder.path().join("bearward.db")).expect("opened");
        database.execute_batch(sql).expect("changed");
    };
    change("create table kept as select * from signing_keys");
    for sql in [
        "update signing_keys set sealed = cast(substr(sealed, 1, 40) || x'00' || substr(sealed, 42) as blob)",
        "update signing_keys set sealed = (select sealed from kept where kept.kid <> signing_keys.kid)",
        "update signing_keys set sealed = x'00' where activated_at is not null",
    ] {
        change(sql);
        let message = failed_start(folder.path());
        assert!(message.contains("was changed in the store") && message.contains("restore a backup"), "{message}");
        change("delete from signing_keys; insert into signing_keys select * from kept");
    }
    drop(GatewayProcess::start(folder.path()));
}

/// All steps of `deploy/keys.md`.
#[tokio::test]
async fn rotating_the_root_secret_ends_no_session() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let gateway = GatewayProcess::start(folder.path());
    let old = issue(&gateway, "alice").await;
    let output = bearward(folder.path(), &["keys", "rotate", "--root"]);
    let message = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && message.contains("added root secret 2"), "{message}");
    assert_eq!(root_of(folder.path()), 1, "the rotation takes effect at the restart");
    gateway.program.kill();

    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(root_of(folder.path()), 2, "the keys are sealed under the new root secret");
    let body = json!({ "refreshToken": old.refresh });
    assert_eq!(gateway.client().bearer(&old.access).get("/").await.status, 200);
    let response = gateway.client().bearer(&old.access).post("/user/refresh", &body).await;
    let new = TokenPair::from_json(&response.json());
    gateway.program.kill();

    // The operator removes the old root secret when all refresh tokens under it have expired.
    let secret = folder.path().join("bearward.secret");
    let text = fs::read_to_string(&secret).expect("read");
    fs::write(&secret, text.lines().last().expect("the newest")).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let client = gateway.client().bearer(&new.access);
    assert_eq!(client.get("/").await.status, 200);
    client.post("/user/refresh", &body).await.assert_rejected(400, "invalid_grant");
    let body = json!({ "refreshToken": new.refresh });
    assert_eq!(client.post("/user/refresh", &body).await.status, 200);
}

#[tokio::test]
async fn the_database_has_no_private_key_in_plain_text() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let path = gateway.path().join("bearward.db");
    let content = [fs::read(&path).expect("read"), fs::read(path.with_extension("db-wal")).expect("read")].concat();
    assert!(!content.windows(11).any(|bytes| bytes == b"PRIVATE KEY"));
}

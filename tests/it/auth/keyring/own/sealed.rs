//! Keys on disk: what survives, and what is not believed.

use std::fs;
use std::path::Path;

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

async fn issue(served: &GatewayProcess, subject: &str) -> TokenPair {
    TokenPair::from_json(&served.admin_client().post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
}

/// What a start in this folder complains about.
fn complaint(folder: &Path) -> String {
    let (status, _, said) = Program::start(folder, &["serve"]).wait();
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

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
    let (before, shown) = (listed(&gateway.admin_client()).await, published(&gateway).await);
    let gateway = gateway.restart();
    assert_eq!(listed(&gateway.admin_client()).await, before);
    assert_eq!(published(&gateway).await, shown);
    for pair in [&old, &new] {
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
    assert_eq!(kid_of(&gateway.issue("alice", "").await.access), kid_of(&new.access));
}

/// `kill -9` in the middle of rotations: the keys are as before one or as after it.
#[tokio::test]
async fn a_crash_in_the_middle_of_rotations_leaves_a_whole_set() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let mut served = GatewayProcess::start(folder.path());
    let mut pairs = Vec::new();
    for round in 0..4_u64 {
        let admin = served.admin_client();
        let rotating = tokio::spawn(async move {
            loop {
                rotate_now(&admin).await;
            }
        });
        for _ in 0..3 {
            pairs.push(issue(&served, "alice").await);
        }
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        served.program.kill();
        rotating.abort();

        served = GatewayProcess::start(folder.path());
        let keys = listed(&served.admin_client()).await;
        assert_eq!(count(&keys, "active"), 1, "{keys:?}");
        for pair in &pairs {
            assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 200, "round {round}");
        }
    }
    let body = json!({ "refreshToken": pairs[0].refresh });
    assert_eq!(served.client().bearer(&pairs[0].access).post("/user/refresh", &body).await.status, 200);
}

#[tokio::test]
async fn a_start_with_another_root_secret_says_what_is_wrong() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let served = GatewayProcess::start(folder.path());
    let pair = issue(&served, "alice").await;
    served.program.kill();
    let secret = folder.path().join("bearward.secret");
    let right = fs::read_to_string(&secret).expect("made at the start");

    fs::write(&secret, format!("1 {}\n", "0".repeat(43))).expect("written");
    let said = complaint(folder.path());
    assert!(said.contains("under another root secret 1") && said.contains("store.secret_file"), "{said}");
    fs::write(&secret, right.replacen('1', "2", 1)).expect("written");
    let said = complaint(folder.path());
    assert!(said.contains("sealed under root secret 1, which is missing"), "{said}");

    fs::write(&secret, &right).expect("written");
    let served = GatewayProcess::start(folder.path());
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 200, "and nothing was spoilt");
}

/// A new root secret beside an old store would only hide what is missing.
#[tokio::test]
async fn a_start_without_the_root_secret_of_its_database_makes_nothing() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let served = GatewayProcess::start(folder.path());
    let pair = issue(&served, "alice").await;
    served.program.kill();
    let [secret, token] = ["bearward.secret", "admin.token"].map(|name| folder.path().join(name));
    let kept = fs::read_to_string(&secret).expect("made at the start");
    for file in [&secret, &token] {
        fs::remove_file(file).expect("removed");
    }

    let said = complaint(folder.path());
    for says in
        ["store.secret_file", "bearward.secret does not exist", "its backup", "bearward.db with its -wal and -shm"]
    {
        assert!(said.contains(says), "{says} is not in {said}");
    }
    assert!(!secret.exists() && !token.exists(), "nothing is made");

    fs::write(&secret, kept).expect("written");
    let served = GatewayProcess::start(folder.path());
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 200);
}

/// That it lacks its root secret would be true of any file.
#[test]
fn a_file_that_is_no_database_is_said_to_be_none() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let database = folder.path().join("bearward.db");
    fs::write(&database, "an hour of somebody's holiday video. ".repeat(100)).expect("written");
    let said = complaint(folder.path());
    assert!(said.contains("store.sqlite") && said.contains("not an SQLite database"), "{said}");
    assert!(!said.contains("bearward.secret") && !folder.path().join("bearward.secret").exists(), "{said}");
}

#[tokio::test]
async fn a_key_that_was_changed_in_the_database_is_refused() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let served = GatewayProcess::start(folder.path());
    assert_eq!(rotate_now(&served.admin_client()).await.status, 200);
    served.program.kill();
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
        let said = complaint(folder.path());
        assert!(said.contains("was changed in the store") && said.contains("restore a backup"), "{said}");
        change("delete from signing_keys; insert into signing_keys select * from kept");
    }
    drop(GatewayProcess::start(folder.path()));
}

/// The steps of `deploy/keys.md`, to their end.
#[tokio::test]
async fn the_root_secret_is_rotated_without_logging_anybody_out() {
    let upstream = Upstream::start();
    let folder = folder_with_gateway(&upstream);
    let served = GatewayProcess::start(folder.path());
    let old = issue(&served, "alice").await;
    let output = bearward(folder.path(), &["keys", "rotate", "--root"]);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && said.contains("added root secret 2"), "{said}");
    assert_eq!(root_of(folder.path()), 1, "nothing happens before the restart");
    served.program.kill();

    let served = GatewayProcess::start(folder.path());
    assert_eq!(root_of(folder.path()), 2, "the keys are sealed anew");
    let body = json!({ "refreshToken": old.refresh });
    assert_eq!(served.client().bearer(&old.access).get("/").await.status, 200);
    let response = served.client().bearer(&old.access).post("/user/refresh", &body).await;
    let new = TokenPair::from_json(&response.json());
    served.program.kill();

    // Once nobody can have a refresh token of the old one any more, its line goes.
    let secret = folder.path().join("bearward.secret");
    let text = fs::read_to_string(&secret).expect("there");
    fs::write(&secret, text.lines().last().expect("the newest")).expect("written");
    let served = GatewayProcess::start(folder.path());
    let client = served.client().bearer(&new.access);
    assert_eq!(client.get("/").await.status, 200);
    client.post("/user/refresh", &body).await.assert_rejected(400, "invalid_grant");
    let body = json!({ "refreshToken": new.refresh });
    assert_eq!(client.post("/user/refresh", &body).await.status, 200);
}

#[tokio::test]
async fn no_private_key_lies_in_the_database() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let path = gateway.path().join("bearward.db");
    let content = [fs::read(&path).expect("read"), fs::read(path.with_extension("db-wal")).expect("read")].concat();
    assert!(!content.windows(11).any(|bytes| bytes == b"PRIVATE KEY"));
}

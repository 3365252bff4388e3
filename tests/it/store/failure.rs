//! A store that fails: the gateway issues and revokes no token until the store works again, without a restart.
//! Everything else goes on.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use bearward::types::ids::TokenId;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, Program};
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, TestResponse, TokenPair, Upstream, disk};

#[track_caller]
fn unavailable(answer: &TestResponse) {
    answer.assert_rejected(503, "temporarily_unavailable");
    let wait: u64 = answer.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
    assert!(wait >= 1, "{answer:?}");
}

/// Waits until `/readyz` has this status: its check of the store may be a second old.
async fn become_ready(admin: &Client, status: u16) -> TestResponse {
    eventually_ok("the readiness changes", async || {
        let answer = admin.get("/readyz").await;
        if answer.status.as_u16() == status { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await
}

/// An operator left a transaction open in an `sqlite3` shell.
#[tokio::test]
async fn a_locked_database_stops_only_issuing_and_revoking() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    assert_eq!(gateway.revoke(&bob.access, &bob.token_id).await.status, 200);
    let admin = gateway.admin_client();

    let shell = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    shell.execute_batch("begin immediate").expect("locked");
    let (end, unknown) = (format!("/admin/v1/tokens/{}", alice.token_id), TokenId::random().to_string());
    let for_carol = json!({ "sub": "carol" });
    let (refreshed, ended, not_found, issued, listed, ended_by_admin, ready) = tokio::join!(
        gateway.refresh(&alice.access, &alice.refresh),
        gateway.revoke(&alice.access, &alice.token_id),
        gateway.revoke(&alice.access, &unknown),
        gateway.request_tokens(&for_carol),
        admin.get("/admin/v1/subjects/alice/tokens"),
        admin.delete(&end),
        admin.get("/readyz"),
    );
    for answer in [&refreshed, &ended, &not_found, &issued, &listed, &ended_by_admin] {
        unavailable(answer);
    }
    assert_eq!((ready.status.as_u16(), &ready.json()["status"]), (503, &json!("not ready")));
    assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains("locked")), "{ready:?}");
    assert_eq!(admin.get("/healthz").await.status, 200, "a restart would not help");
    assert_eq!(admin.get("/readyz?exclude=store").await.status, 200, "a balancer may send requests with tokens");
    assert_eq!(admin.get("/readyz?exclude=keys").await.status, 503, "only the store can be excluded");
    assert_eq!(gateway.metric("bearward_ready").await, 0.0);
    assert_eq!(gateway.status_of(&alice.access).await, 200, "cached tokens are served");
    assert_eq!(gateway.status_of(&bob.access).await, 401, "revoked tokens stay revoked");

    shell.execute_batch("rollback").expect("let go");
    become_ready(&admin, 200).await;
    assert_eq!(gateway.metric("bearward_ready").await, 1.0);
    assert_eq!(gateway.status_of(&alice.access).await, 200, "an operation with a 503 response has no effect");
    assert!(admin.get("/admin/v1/subjects/carol/tokens").await.json()["tokens"].as_array().is_some_and(Vec::is_empty));
    let next = TokenPair::from_json(&gateway.refresh(&alice.access, &alice.refresh).await.json());
    assert_eq!(gateway.revoke(&next.access, &next.token_id).await.status, 200);
    assert_eq!(gateway.status_of(&alice.access).await, 401);

    let lines = gateway.log_lines(10).await;
    let line = lines.iter().find(|line| line["reason"] == "store_unavailable").expect("the log has the reason");
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("locked")), "{line}");
    gateway.drain_and_check_log();
}

/// The kernel rejects every write of the process to a file, as with a full disk.
#[tokio::test]
async fn a_full_disk_leads_to_503_until_there_is_space() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let program = Program::start_with_shell(folder.path(), "trap '' XFSZ; exec \"$0\" serve");
    let served = GatewayProcess::wait_for(program, folder.path());
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let pair = TokenPair::from_json(&issued.json());
    let client = served.client().bearer(&pair.access);
    let path = format!("/token/{}", pair.token_id);
    let refresh = json!({ "refreshToken": pair.refresh });
    let limit_files = |bytes: &str| {
        let pid = served.program.id().to_string();
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
        assert!(set.expect("prlimit is there").success());
    };

    limit_files("0");
    unavailable(&client.delete(&path).await);
    unavailable(&client.post("/user/refresh", &refresh).await);
    unavailable(&served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "bob" })).await);
    become_ready(&served.admin_client(), 503).await;
    assert_eq!(client.get("/").await.status, 200);

    limit_files("unlimited");
    become_ready(&served.admin_client(), 200).await;
    let log = served.program.wait_for_stderr("the store can write again");
    assert_eq!(log.matches("logins, refreshes and revocations get 503: the store cannot write").count(), 1, "{log}");
    let next = TokenPair::from_json(&client.post("/user/refresh", &refresh).await.json());
    assert_eq!(client.delete(&path).await.status, 200);
    assert_eq!(client.get("/").await.status, 401);
    served.program.kill();

    let served = GatewayProcess::start(folder.path());
    assert_eq!(served.client().bearer(&next.access).get("/").await.status, 401);
}

/// Each state is an error that the system returns to SQLite. The operation has no effect when the client gets the 503.
#[tokio::test]
async fn a_failed_disk_leads_to_503_and_loses_no_acknowledged_write() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let (served, disk) = disk::serve(folder.path());
    let (client, admin) = (served.client(), served.admin_client());
    let log_in =
        async || TokenPair::from_json(&admin.post("/admin/v1/tokens", &json!({ "sub": "alice" })).await.json());
    let mut ended: Vec<String> = Vec::new();
    for (state, expected) in [("full", "the disk of the database is full"), ("read-only", "disk"), ("broken", "failed")]
    {
        let pair = log_in().await;
        let client = client.clone().bearer(&pair.access);
        let path = format!("/token/{}", pair.token_id);
        let refresh = json!({ "refreshToken": pair.refresh });

        disk.set_state(state);
        unavailable(&client.post("/user/refresh", &refresh).await);
        unavailable(&client.delete(&path).await);
        unavailable(&admin.post("/admin/v1/tokens", &json!({ "sub": "bob" })).await);
        let ready = become_ready(&admin, 503).await;
        assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains(expected)), "{state}: {ready:?}");
        assert_eq!(client.get("/").await.status, 200, "cached tokens are served");
        for revoked_token in &ended {
            assert_eq!(served.client().bearer(revoked_token).get("/").await.status, 401, "revoked tokens stay revoked");
        }

        disk.set_state("well");
        become_ready(&admin, 200).await;
        let child = TokenPair::from_json(&client.post("/user/refresh", &refresh).await.json());
        assert_eq!(TokenPair::from_json(&client.post("/user/refresh", &refresh).await.json()).refresh, child.refresh);
        assert_eq!(client.delete(&path).await.status, 200);
        assert_eq!(client.get("/").await.status, 401);
        ended.extend([pair.access, child.access]);
    }
    let kept = log_in().await;
    served.program.kill();

    let served = GatewayProcess::start(folder.path());
    for revoked_token in &ended {
        assert_eq!(served.client().bearer(revoked_token).get("/").await.status, 401);
    }
    let next =
        served.client().bearer(&kept.access).post("/user/refresh", &json!({ "refreshToken": kept.refresh })).await;
    assert_eq!(next.status, 200);
}

/// What the gateway would write to a removed file is lost when it ends.
#[tokio::test]
async fn a_removed_database_is_written_no_more() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let served = GatewayProcess::start(folder.path());
    let admin = served.admin_client();
    let log_in = async || admin.post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let pair = TokenPair::from_json(&log_in().await.json());
    let client = served.client().bearer(&pair.access);
    let fail = async |name: &str| {
        let ready = become_ready(&admin, 503).await;
        let reason = ready.json()["reason"].as_str().unwrap_or_default().to_owned();
        assert!(reason.contains(&format!("{name} was removed or replaced")), "{name}: {reason}");
        unavailable(&log_in().await);
        unavailable(&client.delete(&format!("/token/{}", pair.token_id)).await);
        unavailable(&client.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await);
        assert_eq!(client.get("/").await.status, 200, "cached tokens are served");
        assert_eq!(admin.get("/readyz?exclude=store").await.status, 200);
    };

    for name in ["bearward.db", "bearward.db-wal", "bearward.db.lock"] {
        let file = folder.path().join(name);
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&file, &elsewhere).expect("moved");
        fail(name).await;
        // As a backup that is restored while the gateway runs.
        fs::copy(&elsewhere, &file).expect("copied");
        fail(name).await;
        fs::rename(&elsewhere, &file).expect("moved back");
        become_ready(&admin, 200).await;
        assert_eq!(log_in().await.status, 201);
    }
    fs::remove_file(folder.path().join("bearward.db")).expect("removed");
    fail("bearward.db").await;
    served.program.wait_for_stderr("the gateway writes no change any more");
}

/// A flush that neither succeeds nor fails, for example on a network disk without connection.
#[tokio::test]
async fn a_stuck_disk_delays_no_request_and_writes_can_be_retried() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "[timeouts]\nstore = \"300ms\"\n");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, disk) = disk::serve(folder.path());
    let admin = served.admin_client();
    let log_in = async |subject: &str| {
        TokenPair::from_json(&admin.post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
    };
    let (alice, bob) = (log_in("alice").await, log_in("bob").await);
    let (as_alice, as_bob) = (served.client().bearer(&alice.access), served.client().bearer(&bob.access));
    let refresh = json!({ "refreshToken": alice.refresh });
    let end_bob = format!("/token/{}", bob.token_id);

    disk.set_state("stuck");
    let began = Instant::now();
    let carol = json!({ "sub": "carol" });
    let (refreshed, ended, issued, listed, ready) = tokio::join!(
        as_alice.post("/user/refresh", &refresh),
        as_bob.delete(&end_bob),
        admin.post("/admin/v1/tokens", &carol),
        admin.get("/admin/v1/subjects/alice/tokens"),
        admin.get("/readyz"),
    );
    for answer in [&refreshed, &ended, &issued, &listed] {
        unavailable(answer);
    }
    assert_eq!(ready.status, 503);
    assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains("did not respond")), "{ready:?}");
    assert_eq!(admin.get("/healthz").await.status, 200);
    let metrics = admin.get("/metrics").await.text();
    assert!(metrics.lines().any(|line| line.starts_with("bearward_ready 0")), "{metrics}");
    assert_eq!(as_alice.get("/").await.status, 200, "cached tokens are served");
    unavailable(&as_alice.post("/user/refresh", &refresh).await);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

    disk.set_state("well");
    while admin.get("/readyz").await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "the disk never recovers");
    }
    // The disk has completed the pending writes. A client without a response retries.
    let child = TokenPair::from_json(&as_alice.post("/user/refresh", &refresh).await.json());
    assert_eq!(TokenPair::from_json(&as_alice.post("/user/refresh", &refresh).await.json()).refresh, child.refresh);
    assert_eq!(as_bob.get("/").await.status, 401, "the pending revocation is enforced");
    let log_out = served.client().bearer(&child.access).delete(&format!("/token/{}", child.token_id)).await;
    assert_eq!(log_out.status, 200);
    assert_eq!(as_alice.get("/").await.status, 401);
}

/// Only the change of keys waits for the disk. Requests, periodic tasks and the shutdown do not.
#[tokio::test]
async fn a_stuck_disk_delays_neither_key_changes_nor_the_shutdown() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "[timeouts]\nstore = \"400ms\"\n");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, disk) = disk::serve(folder.path());
    let admin = served.admin_client();
    let states = async || {
        let keys = admin.get("/admin/v1/keys").await.json();
        let states =
            keys["keys"].as_array().expect("a list").iter().map(|key| key["state"].as_str().map(str::to_owned));
        states.collect::<Option<Vec<_>>>().expect("text")
    };

    disk.set_state("stuck");
    let began = Instant::now();
    for _ in 0..3 {
        unavailable(&admin.post("/admin/v1/keys/rotate", &json!({})).await);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((states().await, admin.get("/healthz").await.status.as_u16()), (vec!["active".to_owned()], 200));

    disk.set_state("well");
    // The disk completes the pending write. The gateway drops the writes of requests that timed out.
    eventually_ok("the pending key is created", async || {
        let states = states().await;
        (states == ["pending", "active"]).then_some(()).ok_or_else(|| format!("{states:?}"))
    })
    .await;
    // The absence of further keys is under test, so there is no condition to wait for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(states().await, ["pending", "active"]);

    disk.set_state("stuck");
    unavailable(&admin.post("/admin/v1/keys/rotate", &json!({ "now": true })).await);
    let began = Instant::now();
    served.program.signal("TERM");
    let (status, _, log) = tokio::task::spawn_blocking(|| served.program.wait()).await.expect("no panic");
    assert!(status.success() && log.contains("check its disk"), "{log}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

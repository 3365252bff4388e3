//! A store that fails: no token is given out and none is reported ended, everything else goes on, and it passes without a
//! restart.

use std::process::Command;
use std::time::{Duration, Instant};

use bearward::types::ids::TokenId;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::{Program, Served};
use crate::support::{Answer, Gateway, Pair, Upstream, disk};

#[track_caller]
fn unavailable(answer: &Answer) {
    answer.refused(503, "temporarily_unavailable");
    let wait: u64 = answer.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
    assert!(wait >= 1, "{answer:?}");
}

/// Somebody left a transaction open in an `sqlite3` shell.
#[tokio::test]
async fn while_the_database_is_locked_tokens_are_neither_given_nor_ended_and_all_else_goes_on() {
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
        gateway.ask_for_tokens(&for_carol),
        admin.get("/admin/v1/subjects/alice/tokens"),
        admin.delete(&end),
        admin.get("/readyz"),
    );
    for answer in [&refreshed, &ended, &not_found, &issued, &listed, &ended_by_admin] {
        unavailable(answer);
    }
    assert_eq!((ready.status.as_u16(), &ready.json()["status"]), (503, &json!("not ready")));
    assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains("locked")), "{ready:?}");
    assert_eq!(admin.get("/healthz").await.status, 200, "restarting it would not help");
    assert_eq!(gateway.status_of(&alice.access).await, 200, "what is known is served");
    assert_eq!(gateway.status_of(&bob.access).await, 401, "what was revoked stays so");

    shell.execute_batch("rollback").expect("let go");
    assert_eq!(admin.get("/readyz").await.status, 200);
    assert_eq!(gateway.status_of(&alice.access).await, 200, "what was answered with 503 has not happened");
    assert!(admin.get("/admin/v1/subjects/carol/tokens").await.json()["tokens"].as_array().is_some_and(Vec::is_empty));
    let next = Pair::of(&gateway.refresh(&alice.access, &alice.refresh).await.json());
    assert_eq!(gateway.revoke(&next.access, &next.token_id).await.status, 200);
    assert_eq!(gateway.status_of(&alice.access).await, 401);

    let lines = gateway.log_lines(10).await;
    let line = lines.iter().find(|line| line["reason"] == "store_unavailable").expect("the log tells why");
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("locked")), "{line}");
    gateway.end_without_a_token_in_the_log();
}

/// The kernel lets the process write no byte more to any file, as a full disk would.
#[tokio::test]
async fn a_full_disk_is_a_503_until_there_is_room_again() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::text(&upstream.address.to_string(), ""))
        .expect("written");
    let program = Program::start_by(folder.path(), "trap '' XFSZ; exec \"$0\" serve");
    let served = Served::of(program, folder.path());
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let pair = Pair::of(&issued.json());
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
    assert_eq!(served.admin_client().get("/readyz").await.status, 503);
    assert_eq!(client.get("/").await.status, 200);

    limit_files("unlimited");
    assert_eq!(served.admin_client().get("/readyz").await.status, 200);
    let next = Pair::of(&client.post("/user/refresh", &refresh).await.json());
    assert_eq!(client.delete(&path).await.status, 200);
    assert_eq!(client.get("/").await.status, 401);
    served.program.kill();

    let served = Served::start(folder.path());
    assert_eq!(served.client().bearer(&next.access).get("/").await.status, 401);
}

/// Each is what SQLite is told by the system in that case; nothing was done by the time of the answer.
#[tokio::test]
async fn a_disk_that_fails_is_a_503_until_it_is_well_again_and_nothing_answered_is_lost() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::text(&upstream.address.to_string(), ""))
        .expect("written");
    let (served, disk) = disk::serve(folder.path());
    let (client, admin) = (served.client(), served.admin_client());
    let log_in = async || Pair::of(&admin.post("/admin/v1/tokens", &json!({ "sub": "alice" })).await.json());
    let mut ended: Vec<String> = Vec::new();
    for (word, told) in [("full", "the disk of the database is full"), ("read-only", "disk"), ("broken", "failed")] {
        let pair = log_in().await;
        let client = client.clone().bearer(&pair.access);
        let path = format!("/token/{}", pair.token_id);
        let refresh = json!({ "refreshToken": pair.refresh });

        disk.is(word);
        unavailable(&client.post("/user/refresh", &refresh).await);
        unavailable(&client.delete(&path).await);
        unavailable(&admin.post("/admin/v1/tokens", &json!({ "sub": "bob" })).await);
        let ready = admin.get("/readyz").await;
        assert_eq!(ready.status, 503);
        assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains(told)), "{word}: {ready:?}");
        assert_eq!(client.get("/").await.status, 200, "what is known is served");
        for gone in &ended {
            assert_eq!(served.client().bearer(gone).get("/").await.status, 401, "what was revoked stays so");
        }

        disk.is("well");
        assert_eq!(admin.get("/readyz").await.status, 200, "{word}");
        let child = Pair::of(&client.post("/user/refresh", &refresh).await.json());
        assert_eq!(Pair::of(&client.post("/user/refresh", &refresh).await.json()).refresh, child.refresh);
        assert_eq!(client.delete(&path).await.status, 200);
        assert_eq!(client.get("/").await.status, 401);
        ended.extend([pair.access, child.access]);
    }
    let kept = log_in().await;
    served.program.kill();

    let served = Served::start(folder.path());
    for gone in &ended {
        assert_eq!(served.client().bearer(gone).get("/").await.status, 401);
    }
    let next =
        served.client().bearer(&kept.access).post("/user/refresh", &json!({ "refreshToken": kept.refresh })).await;
    assert_eq!(next.status, 200);
}

/// A flush that neither succeeds nor fails: a network disk that is away, a controller that resets.
#[tokio::test]
async fn a_disk_that_is_stuck_keeps_nobody_waiting_and_what_it_was_given_is_asked_for_again() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::text(&upstream.address.to_string(), "[timeouts]\nstore = \"300ms\"\n");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, disk) = disk::serve(folder.path());
    let admin = served.admin_client();
    let log_in =
        async |subject: &str| Pair::of(&admin.post("/admin/v1/tokens", &json!({ "sub": subject })).await.json());
    let (alice, bob) = (log_in("alice").await, log_in("bob").await);
    let (as_alice, as_bob) = (served.client().bearer(&alice.access), served.client().bearer(&bob.access));
    let refresh = json!({ "refreshToken": alice.refresh });
    let end_bob = format!("/token/{}", bob.token_id);

    disk.is("stuck");
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
    assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains("stuck")), "{ready:?}");
    assert_eq!(admin.get("/healthz").await.status, 200);
    assert_eq!(as_alice.get("/").await.status, 200, "what is known is served");
    unavailable(&as_alice.post("/user/refresh", &refresh).await);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

    disk.is("well");
    while admin.get("/readyz").await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "it never works again");
    }
    // The disk has done meanwhile what it was given; whoever heard nothing of it asks again.
    let child = Pair::of(&as_alice.post("/user/refresh", &refresh).await.json());
    assert_eq!(Pair::of(&as_alice.post("/user/refresh", &refresh).await.json()).refresh, child.refresh);
    assert_eq!(as_bob.get("/").await.status, 401, "and enforced it");
    let log_out = served.client().bearer(&child.access).delete(&format!("/token/{}", child.token_id)).await;
    assert_eq!(log_out.status, 200);
    assert_eq!(as_alice.get("/").await.status, 401);
}

/// What keys wait for, nothing else does: neither whoever asks, nor housekeeping, nor the end.
#[tokio::test]
async fn a_disk_that_is_stuck_holds_up_neither_a_change_of_keys_nor_the_end() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::text(&upstream.address.to_string(), "[timeouts]\nstore = \"400ms\"\n");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, disk) = disk::serve(folder.path());
    let admin = served.admin_client();
    let states = async || {
        let keys = admin.get("/admin/v1/keys").await.json();
        let states =
            keys["keys"].as_array().expect("a list").iter().map(|key| key["state"].as_str().map(str::to_owned));
        states.collect::<Option<Vec<_>>>().expect("text")
    };

    disk.is("stuck");
    let began = Instant::now();
    for _ in 0..3 {
        unavailable(&admin.post("/admin/v1/keys/rotate", &json!({})).await);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((states().await, admin.get("/healthz").await.status.as_u16()), (vec!["active".to_owned()], 200));

    disk.is("well");
    // The disk does what it was given; what nobody waited for any more is not asked of it.
    while states().await != ["pending", "active"] {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", states().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(states().await, ["pending", "active"]);

    disk.is("stuck");
    unavailable(&admin.post("/admin/v1/keys/rotate", &json!({ "now": true })).await);
    let began = Instant::now();
    served.program.signal("TERM");
    let (status, _, said) = tokio::task::spawn_blocking(|| served.program.wait()).await.expect("no panic");
    assert!(status.success() && said.contains("is its disk stuck?"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

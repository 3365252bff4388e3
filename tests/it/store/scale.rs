//! A store with very many sessions: the gateway starts, refreshes, revokes and sweeps as with few, in bounded memory.

use std::path::Path;
use std::time::{Duration, Instant};

use bearward::types::boot_time::BootTime;
use bearward::types::clock::{CORRECTION_TIME, Clock, SystemClock};
use rusqlite::{Connection, params};
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, bearward};
use crate::support::repetitions::repetitions;
use crate::support::wait::eventually_within;
use crate::support::{Client, Gateway, TokenPair, Upstream};

/// How much more memory the gateway may use than with an empty store. Its page cache has 2 MiB.
const MORE_MEMORY: usize = 24 << 20;

/// Longer than any call needs, also in a debug build beside other tests.
const CALL: Duration = Duration::from_secs(2);

/// Adds this many families of users with one to four logins each. One in ten has expired, and one in a hundred is
/// revoked.
fn fill(database: &Path, count: usize) {
    let database = Connection::open(database).expect("opens");
    database
        .execute_batch("pragma journal_mode = wal; pragma synchronous = off; pragma cache_size = -500000")
        .expect("sets");
    let (now, day) = (SystemClock.now().as_millis() as i64, 86_400_000_i64);
    // The text of an id is a number below 2^128, so it begins with a small digit.
    let sql = "with recursive number (n) as (select 1 union all select n + 1 from number where n < ?1)
        insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
                rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry, revoked_at,
                revoked_reason)
            select '0' || substr(hex(randomblob(11)), 1, 21), 'user-' || (abs(random()) % (?1 / 3 + 1)),
                'orders:read orders:write', '[]', 'app', '{}', 'a phone', randomblob(32), 7, 1, ?2 - n, 6,
                ?2 - 20 * ?3 - n, ?2 - n, ?2 + 7 * ?3, iif(n % 10 = 0, ?2 - 2 * ?3 - n, ?2 + 10 * ?3),
                iif(n % 100 = 1, ?2 - n, null), iif(n % 100 = 1, 'logout', null)
            from number";
    database.execute(sql, params![count as i64, now, day]).expect("writes");
}

fn count(database: &Path) -> usize {
    let database = Connection::open(database).expect("opens");
    let count: i64 = database.query_row("select count(*) from families", [], |row| row.get(0)).expect("reads");
    count as usize
}

/// The clock of a machine that has just started may be wrong.
fn until_clock_is_confirmed() -> Duration {
    // From one sweep to the next.
    let interval = Duration::from_secs(30);
    let confirmed = BootTime::default() + CORRECTION_TIME;
    if BootTime::now() < confirmed { confirmed.since(BootTime::now()) + interval } else { Duration::ZERO }
}

async fn log_in(admin: &Client, subject: &str) -> TokenPair {
    TokenPair::from_json(&admin.post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
}

async fn refreshed(gateway: &GatewayProcess, pair: &TokenPair) -> TokenPair {
    let body = json!({ "refreshToken": pair.refresh });
    let began = Instant::now();
    let response = gateway.client().bearer(&pair.access).post("/user/refresh", &body).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(began.elapsed() < CALL, "a refresh took {:?}", began.elapsed());
    TokenPair::from_json(&response.json())
}

/// By hand: `BEARWARD_ROUNDS=1000000 cargo test --test programs a_million_families -- --nocapture`.
#[tokio::test]
async fn a_million_families_start_refresh_revoke_and_are_swept() {
    let families = repetitions(20_000);
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let database = folder.path().join("bearward.db");
    let gateway = GatewayProcess::start(folder.path());
    let (alice, bob) = (log_in(&gateway.admin_client(), "alice").await, log_in(&gateway.admin_client(), "bob").await);
    let empty = gateway.program.peak_memory();
    gateway.program.signal("TERM");
    gateway.program.wait();
    let began = Instant::now();
    fill(&database, families);
    let unexpired = count(&database) - families / 10;
    eprintln!("{families} families written in {:?}", began.elapsed());

    let began = Instant::now();
    let gateway = GatewayProcess::start(folder.path());
    let started = began.elapsed();
    assert!(started < Duration::from_secs(5), "the start took {started:?}");
    let next = refreshed(&gateway, &alice).await;
    assert_eq!(gateway.client().bearer(&next.access).get("/").await.status, 200);
    let listed = gateway.admin_client().get("/admin/v1/subjects/user-1/tokens").await;
    assert!(listed.json()["tokens"].as_array().is_some_and(|tokens| tokens.len() < 100), "{listed:?}");
    let began = Instant::now();
    assert_eq!(gateway.client().bearer(&bob.access).delete(&format!("/token/{}", bob.token_id)).await.status, 200);
    assert!(began.elapsed() < CALL, "a revocation took {:?}", began.elapsed());
    assert_eq!(gateway.client().bearer(&bob.access).get("/").await.status, 401);

    // The sweep begins at once and pauses between its steps, so that refreshes do not wait for it.
    let time = Duration::from_secs(60 + families as u64 / 1000) + until_clock_is_confirmed();
    eventually_within(time, "all expired families are deleted", async || match count(&database) {
        left if left <= unexpired => Ok(()),
        left => Err(format!("{left} families, {unexpired} of which have not expired")),
    })
    .await;
    assert_eq!(count(&database), unexpired, "and no other");
    let next = refreshed(&gateway, &next).await;

    let began = Instant::now();
    let everything = json!({ "all": true });
    let ended = gateway.admin_client().post("/admin/v1/revocations", &everything).await;
    let revoked_in = began.elapsed();
    assert!(ended.status.is_success(), "{ended:?}");
    assert_eq!(gateway.client().bearer(&next.access).get("/").await.status, 401, "all of them at once");
    let new = log_in(&gateway.admin_client(), "carol").await;
    let memory = gateway.program.peak_memory();
    assert!(memory < empty + MORE_MEMORY, "{} MiB, empty {} MiB", memory >> 20, empty >> 20);
    eprintln!(
        "started in {started:?}; everything revoked in {revoked_in:?}; peak memory {} MiB, empty {} MiB",
        memory >> 20,
        empty >> 20
    );
    gateway.program.kill();
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(gateway.client().bearer(&next.access).get("/").await.status, 401, "after a restart");
    refreshed(&gateway, &new).await;
}

#[tokio::test]
async fn an_operator_sweeps_a_stopped_store_at_once() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let database = folder.path().join("bearward.db");
    let nothing = bearward(folder.path(), &["store", "sweep"]);
    let message = String::from_utf8_lossy(&nothing.stderr);
    assert!(message.contains("there is no database") && message.contains("bearward.db"), "{message}");
    assert!(nothing.status.code() == Some(1) && !database.exists(), "a sweep makes no database: {nothing:?}");
    let gateway = GatewayProcess::start(folder.path());
    let alice = log_in(&gateway.admin_client(), "alice").await;
    let in_use = bearward(folder.path(), &["store", "sweep"]);
    let message = String::from_utf8_lossy(&in_use.stderr);
    assert!(!in_use.status.success() && message.contains("in use by a running gateway"), "{message}");
    gateway.program.signal("TERM");
    gateway.program.wait();
    fill(&database, 20_000);

    for (left, deleted) in [(18_001, "deleted rows: 2000"), (18_001, "deleted rows: 0 of 0")] {
        let swept = bearward(folder.path(), &["store", "sweep"]);
        let progress = String::from_utf8_lossy(&swept.stderr);
        assert!(swept.status.success() && progress.contains(deleted), "{progress}");
        assert_eq!(count(&database), left, "{progress}");
    }
    let gateway = GatewayProcess::start(folder.path());
    refreshed(&gateway, &alice).await;
}

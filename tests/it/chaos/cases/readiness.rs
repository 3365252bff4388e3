//! `/readyz` while the database can be read and not written.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::survive::PATIENCE;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// Several times as long as a failed change counts.
const LONG: Duration = Duration::from_secs(8);

async fn become_ready(gateway: &Gateway, status: u16) -> String {
    eventually_ok("the readiness changes", async || {
        let ready = gateway.admin_client().get("/readyz").await;
        if ready.status.as_u16() == status { Ok(ready.text()) } else { Err(format!("{ready:?}")) }
    })
    .await
}

/// The change of the probe itself fits in a page that is there.
#[tokio::test]
#[ignore = "tests/chaos runs it"]
async fn a_full_disk_of_the_database_makes_gateways_unready_until_there_is_room() {
    let upstream = Upstream::start();
    let server = PostgresServer::start_on_disk("160m");
    let gateway = Gateway::with_config(&upstream, &format!("[store]\n{}", server.store_keys()));
    let pair = gateway.issue("alice", "").await;
    become_ready(&gateway, 200).await;
    let filler = server.folder.join("data/filler");
    let mut file = File::create(&filler).expect("created");
    while file.write_all(&[1; 64 * 1024]).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
    let began = Instant::now();
    let bob = json!({ "sub": "bob" });
    while gateway.request_tokens(&bob).await.status == 201 {
        assert!(began.elapsed() < PATIENCE, "a full disk stops no login");
    }
    let reason = become_ready(&gateway, 503).await;
    assert!(reason.contains("the disk of the database is full"), "{reason}");
    // A condition that must hold all the time.
    let since = Instant::now();
    while since.elapsed() < LONG {
        let admin = gateway.admin_client();
        assert_eq!(admin.get("/readyz").await.status, 503, "after {:?}", since.elapsed());
        assert_eq!(admin.get("/readyz?exclude=store").await.status, 200);
        assert_eq!(gateway.status_of(&pair.access).await, 200, "a known token is served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // An open file keeps its space.
    drop(file);
    fs::remove_file(&filler).expect("removed");
    become_ready(&gateway, 200).await;
    assert_eq!(gateway.request_tokens(&bob).await.status, 201);
}

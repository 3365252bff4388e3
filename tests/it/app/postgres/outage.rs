//! The journal, metrics and pages while the database is away.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::text;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Client, TokenPair, Upstream};

async fn serve(folder: &Path, upstream: &Upstream, store: &str) -> GatewayProcess {
    std::fs::write(folder.join("gateway.toml"), text(upstream, store)).expect("written");
    let path = folder.to_owned();
    tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts")
}

#[tokio::test]
async fn an_outage_of_the_database_is_logged_and_its_end() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let served = serve(folder.path(), &upstream, &server.store_keys()).await;
    let back = "the log of revocations can be read again";
    server.kill();
    for says in ["cannot read the log of revocations", "cannot tell the other gateways that this one lives"] {
        served.program.wait_for_stderr(says);
    }
    server.restart();
    let printed = served.program.wait_for_stderr(back);
    let before = printed.split("cannot read the log of revocations").next().expect("a first part");
    assert!(!before.contains(back), "{printed}");
}

/// Waits until the reason in the response of `/readyz` has this part. Returns the reason.
async fn reason(probe: &Client, path: &str, part: &str) -> String {
    eventually_within(Duration::from_secs(20), &format!("{path} says {part}"), async || {
        let response = probe.get(path).await;
        let reason = response.json()["reason"].as_str().unwrap_or_default().to_owned();
        if response.status == 503 && reason.contains(part) { Ok(reason) } else { Err(format!("{response:?}")) }
    })
    .await
}

/// An operator sees 503 and asks why. The journal has one message for all requests.
#[tokio::test]
async fn requests_that_get_503_for_an_outage_have_one_message_and_a_reason() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let keys = format!("{}\nmax_staleness = \"4s\"", server.store_keys());
    let served = serve(folder.path(), &upstream, &keys).await;
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let alice = served.client().bearer(&TokenPair::from_json(&issued.json()).access);
    assert_eq!(alice.get("/").await.status, 200);
    // Without a token.
    let probe = Client::http1(served.admin).host("localhost");
    server.kill();
    for path in ["/readyz", "/readyz?exclude=store"] {
        let reason = reason(&probe, path, "from 4.0s on, requests with tokens get 503").await;
        assert!(reason.starts_with("the store does not answer (the server cannot be reached): the rev"), "{reason}");
        for place in ["127.0.0.1", &server.port.to_string(), "bearward"] {
            assert!(!reason.contains(place), "{place}: {reason}");
        }
    }
    reason(&probe, "/readyz", "requests with tokens get 503, because that is more than 4.0s").await;
    let begins = "requests with tokens get 503 (revocations_stale)";
    served.program.wait_for_stderr(begins);
    for _ in 0..20 {
        alice.get("/").await.assert_rejected(503, "temporarily_unavailable");
    }
    server.restart();
    let ends = "all revocations are known again: requests with tokens are served as before";
    let printed = served.program.wait_for_stderr(ends);
    eventually_ok("the token is accepted", async || match alice.get("/").await.status.as_u16() {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    let lines = |part: &str, level: &str| {
        let printed = served.program.stderr_so_far();
        printed.lines().filter(|line| line.contains(part) && line.contains(level)).count()
    };
    assert_eq!((lines(begins, "ERROR"), lines(ends, "INFO")), (1, 1), "{printed}");
    assert!(printed.contains("the store does not answer (the server cannot be reached)"), "{printed}");
}

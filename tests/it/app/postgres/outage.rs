//! What the operator learns while the database is away.

use tempfile::TempDir;

use super::text;
use crate::support::Upstream;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;

#[tokio::test]
async fn an_outage_of_the_database_is_logged_and_its_end() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    std::fs::write(folder.path().join("gateway.toml"), text(&upstream, &server.store_keys())).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
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

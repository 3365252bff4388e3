//! Servers by name: the gateway resolves the name again and again.

use http::Request;
use tempfile::TempDir;

use crate::support::connection::{self, HttpConnection, next_chunk};
use crate::support::program::GatewayProcess;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream, dns};

const NAME: &str = "orders.test";
/// No other test uses these addresses, so a port that is free at one of them is free at the other.
const OLD: &str = "127.0.0.88";
const NEW: &str = "127.0.0.89";

/// Sends requests until ten in a row have reached this backend. Each one must get a response.
async fn wait_until_reached(served: &GatewayProcess, backend: &Upstream) {
    let mut in_a_row = 0;
    eventually_ok("the gateway uses the new address", async || {
        backend.forget();
        assert_eq!(served.client().get("/").await.text(), "hello");
        in_a_row = if backend.seen().is_empty() { 0 } else { in_a_row + 1 };
        (in_a_row == 10).then_some(()).ok_or_else(|| format!("{in_a_row} requests in a row"))
    })
    .await;
}

#[tokio::test]
async fn a_new_address_is_used_and_a_lost_name_keeps_its_addresses() {
    let old = Upstream::at(&format!("{OLD}:0"));
    let new = Upstream::at(&format!("{NEW}:{}", old.address.port()));
    let folder = TempDir::new().expect("a folder");
    let text =
        Gateway::public_config(old.address, "dns_refresh_interval = \"1s\"\nidle_timeout = \"1h\"").replace(OLD, NAME);
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, names) = dns::serve(folder.path(), NAME, OLD);
    wait_until_reached(&served, &old).await;
    let (pieces, body) = connection::streamed();
    let connection = HttpConnection::http1(served.addresses[0]).await;
    let sending = connection.sender().send(Request::post("/mirror").body(body).expect("a request"));
    let (answer, ()) = tokio::join!(sending, pieces.send("first"));
    let mut answer = answer.expect("an answer").into_body();
    assert_eq!(next_chunk(&mut answer).await.as_deref(), Some(&b"first"[..]));

    names.resolves_to(NEW);
    wait_until_reached(&served, &new).await;
    let listed = served.admin_client().get("/admin/v1/upstreams").await.json();
    let server = &listed["upstreams"][0]["servers"][0];
    assert_eq!(server["addresses"], serde_json::json!([new.address.to_string()]), "{listed}");

    names.has_no_address();
    served.program.wait_for_stderr("DNS lookup failed, keeping the last addresses");
    wait_until_reached(&served, &new).await;

    names.resolves_to(OLD);
    wait_until_reached(&served, &old).await;
    // The request in flight is not affected.
    pieces.send("more").await;
    assert_eq!(next_chunk(&mut answer).await.as_deref(), Some(&b"more"[..]));
    drop(pieces);
    assert!(next_chunk(&mut answer).await.is_none());
}

//! Backends by name: where it leads is asked again and again.

use std::time::{Duration, Instant};

use http::Request;
use tempfile::TempDir;

use crate::support::program::Served;
use crate::support::session::{self, Session, next_piece};
use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Upstream, names};

const NAME: &str = "orders.test";
/// Nobody else's tests use these, so that a port that is free at one of them is free at the other.
const OLD: &str = "127.0.0.88";
const NEW: &str = "127.0.0.89";

/// Asks until so many requests in a row have reached this backend: each is answered.
async fn reach(served: &Served, backend: &Upstream) {
    let began = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < 10 {
        assert!(began.elapsed() < PATIENCE, "the name is not followed");
        backend.forget();
        assert_eq!(served.client().get("/").await.text(), "hello");
        in_a_row = if backend.seen().is_empty() { 0 } else { in_a_row + 1 };
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_followed_and_one_that_is_not_found_leads_where_it_did() {
    let old = Upstream::at(&format!("{OLD}:0"));
    let new = Upstream::at(&format!("{NEW}:{}", old.address.port()));
    let folder = TempDir::new().expect("a folder");
    let text =
        Gateway::open_text(old.address, "dns_refresh_interval = \"1s\"\nidle_timeout = \"1h\"").replace(OLD, NAME);
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, names) = names::serve(folder.path(), NAME, OLD);
    reach(&served, &old).await;
    let (pieces, body) = session::streamed();
    let session = Session::http1(served.addresses[0]).await;
    let sending = session.sender().send(Request::post("/mirror").body(body).expect("a request"));
    let (answer, ()) = tokio::join!(sending, pieces.send("first"));
    let mut answer = answer.expect("an answer").into_body();
    assert_eq!(next_piece(&mut answer).await.as_deref(), Some(&b"first"[..]));

    names.leads_to(NEW);
    reach(&served, &new).await;
    let listed = served.admin_client().get("/admin/v1/upstreams").await.json();
    let server = &listed["upstreams"][0]["servers"][0];
    assert_eq!(server["addresses"], serde_json::json!([new.address.to_string()]), "{listed}");

    names.is_not_found();
    served.program.stderr_with("DNS lookup failed, keeping the last addresses");
    reach(&served, &new).await;

    names.leads_to(OLD);
    reach(&served, &old).await;
    // What was under way has noticed nothing of all that.
    pieces.send("more").await;
    assert_eq!(next_piece(&mut answer).await.as_deref(), Some(&b"more"[..]));
    drop(pieces);
    assert!(next_piece(&mut answer).await.is_none());
}

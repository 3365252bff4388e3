//! Servers by name: the gateway resolves the name again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Request;
use tempfile::TempDir;

use crate::support::connection::{self, HttpConnection, next_chunk};
use crate::support::program::GatewayProcess;
use crate::support::wait::{eventually, eventually_ok};
use crate::support::{Gateway, Upstream, dns};

const NAME: &str = "orders.test";
/// No other test uses these addresses, so a port that is free at one of them is free at the other.
const OLD: &str = "127.0.0.88";
const NEW: &str = "127.0.0.89";

/// Nothing listens at this address.
const DEAD: &str = "127.0.0.90";

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

/// The answers change every second: with and without an address that is dead, with none, and with all. One address that
/// works is always known. The requests are not repeatable, so a failure is not hidden by a retry.
#[tokio::test]
async fn flapping_answers_under_load_fail_no_request() {
    let old = Upstream::at(&format!("{OLD}:0"));
    let new = Upstream::at(&format!("{NEW}:{}", old.address.port()));
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::public_config(old.address, "dns_refresh_interval = \"1s\"").replace(OLD, NAME);
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, names) = dns::serve(folder.path(), NAME, OLD);

    let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (is_over, answered, address) = (is_over.clone(), answered.clone(), served.addresses[0]);
            tokio::spawn(async move {
                let mut connection = HttpConnection::http1(address).await;
                while !is_over.load(Ordering::SeqCst) {
                    let request = Request::post("/").body(connection::full("once")).expect("a request");
                    let response = connection.send(request).await;
                    assert_eq!(response.status(), 200);
                    assert_eq!(connection::text(response.into_body()).await, "once", "the backend sends it back");
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for answer in [&[OLD, DEAD][..], &[DEAD, NEW], &[], &[OLD, NEW, DEAD], &[NEW], &[], &[OLD]] {
        names.resolves_to_all(answer);
        if answer.is_empty() {
            served.program.wait_for_stderr("DNS lookup failed, keeping the last addresses");
            continue;
        }
        eventually_ok("the gateway knows these addresses", async || {
            let listed = served.admin_client().get("/admin/v1/upstreams").await.json();
            let known = &listed["upstreams"][0]["servers"][0]["addresses"];
            let mut expected: Vec<_> = answer.iter().map(|ip| format!("{ip}:{}", old.address.port())).collect();
            expected.sort();
            (*known == serde_json::json!(expected)).then_some(()).ok_or_else(|| known.to_string())
        })
        .await;
        let before = answered.load(Ordering::SeqCst);
        eventually("the load goes on", || answered.load(Ordering::SeqCst) > before + 100).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("every request has its response");
    }
    assert!(old.seen().len() > 100 && new.seen().len() > 100);
    assert_eq!(old.seen().len() + new.seen().len(), answered.load(Ordering::SeqCst), "each was sent once");
}

/// The resolver adds no search domains to such a name (`options ndots:5` in Kubernetes). The server does not know it.
#[tokio::test]
async fn a_name_with_a_final_dot_is_looked_up_as_it_is() {
    const ABSOLUTE: &str = "orders.test.";
    let backend = Upstream::at(&format!("{OLD}:0"));
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::public_config(backend.address, "preserve_host = false").replace(OLD, ABSOLUTE);
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (served, _names) = dns::serve(folder.path(), ABSOLUTE, OLD);
    wait_until_reached(&served, &backend).await;
    let seen = backend.seen().pop().expect("a request");
    assert_eq!(seen.header("host"), Some(&*format!("orders.test:{}", backend.address.port())));
}

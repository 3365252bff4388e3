//! API keys while the store does not respond: known keys go on, and nothing waits for long.

use std::time::{Duration, Instant};

use bearward::config::{Probe, parse};
use bearward::tokens::family::api_key::generate;
use bearward::types::ids::TokenId;
use serde_json::json;

use crate::support::sqlite_shell::Shell;
use crate::support::{Gateway, Upstream};

const STORE_TIMEOUT: Duration = Duration::from_millis(300);

fn gateway(upstream: &Upstream) -> Gateway {
    let store = format!("[timeouts]\nstore = \"{}ms\"\n", STORE_TIMEOUT.as_millis());
    let limits = "[limits]\nbad_signatures = 5\n";
    Gateway::with_config(upstream, &format!("{store}{limits}[[route]]\npath = \"/\"\napi_keys = true\n"))
}

#[tokio::test]
async fn a_known_key_stays_known_over_a_reload() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot", "scope": "a" })).await;
    let (other, other_id) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    for key in [&key, &other] {
        assert_eq!(gateway.client().bearer(key).get("/").await.status, 200);
    }
    let path = format!("/admin/v1/api-keys/{other_id}");
    assert_eq!(gateway.admin_client().delete(&path).await.status, 200);
    let shell = Shell::lock(&gateway);
    let text = format!("{}[identity]\nsubject = \"X-Robot\"\n", gateway.configuration());
    let renamed = parse(&text, gateway.path(), Probe::None).unwrap_or_else(|errors| panic!("{errors}"));
    gateway.running().reload(renamed).expect("it reloads");
    upstream.forget();
    assert_eq!(gateway.client().bearer(&key).get("/").await.status, 200);
    let seen = upstream.seen().pop().expect("forwarded");
    assert_eq!((seen.header("x-robot"), seen.header("x-auth-subject")), (Some("robot"), None));
    gateway.client().bearer(&other).get("/").await.assert_rejected(401, "invalid_token");
    shell.release();
}

#[tokio::test]
async fn unknown_keys_wait_no_longer_than_the_store_may_take() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let (known, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let (fresh, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    assert_eq!(gateway.client().bearer(&known).get("/").await.status, 200);
    let shell = Shell::lock(&gateway);
    let began = Instant::now();
    let status = async |key: String| gateway.client().bearer(&key).get("/").await.status.as_u16();
    // Sixty programs with one key, then more guesses than an address may make. Not at once: the first guesses would use
    // up what the address may look up, also for the key.
    let waiting = futures_util::future::join_all((0..60).map(|_| status(fresh.clone()))).await;
    let guesses = futures_util::future::join_all((0..20).map(|_| status(generate(TokenId::random()).0))).await;
    assert!(waiting.iter().all(|status| *status == 503), "{waiting:?}");
    let limited = guesses.iter().filter(|status| **status == 429).count();
    assert!(limited >= 15 && guesses.iter().all(|status| [429, 503].contains(status)), "{guesses:?}");
    assert!(began.elapsed() < 4 * STORE_TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(status(known).await, 200);
    shell.release();
    // The store has failed, and not the client.
    crate::support::wait::eventually_ok("the store responds", async || match status(fresh.clone()).await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert!(gateway.metric("bearward_api_key_reads_total{result=\"failed\"").await >= 1.0);
}

//! The provider has rotated a refresh token, and the store fails, or another gateway takes over, before the new one is
//! saved. The next refresh sends the new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::liar::{Liar, Lies};
use super::lies::{map, response};
use super::{APP, everything, folder, is_ready};
use crate::support::clock::ManualClock;
use crate::support::disk;
use crate::support::ports::free_address;
use crate::support::postgres::PostgresServer;
use crate::support::program::{GatewayProcess, Program};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, Upstream};

const PATIENCE: Duration = Duration::from_secs(60);
/// In seconds. The gateway refreshes after half of it.
const SHORT: u64 = 8;

/// The provider issues this refresh token next, beside an access token with this lifetime in seconds.
fn issues(liar: &Liar, refresh_token: &'static str, lifetime: u64) {
    let said = json!({ "expires_in": lifetime, "refresh_token": refresh_token });
    liar.tell(Lies { claims: map(json!({ "exp": 4_000_000_000_u64 })), ..response(said) });
}

/// The refresh tokens that the provider got.
fn sent(liar: &Liar) -> Vec<String> {
    liar.exchanges().iter().filter_map(|form| form.get("refresh_token").cloned()).collect()
}

/// Requests come until the provider has got this many refreshes.
async fn refreshes(liar: &Liar, alice: &Visitor, count: usize) {
    eventually_within(PATIENCE, "the provider is asked", async || {
        // It may wait for the gateway, or find none.
        let mut alice = alice.clone();
        let request = tokio::spawn(async move { alice.fetch(&format!("{APP}/")).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        request.abort();
        match sent(liar) {
            sent if sent.len() >= count => Ok(()),
            sent => Err(format!("{sent:?}")),
        }
    })
    .await;
}

async fn is_signed_in(liar: &Liar, alice: &mut Visitor) {
    assert_eq!(liar.sign_in(alice, |back| back).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
}

/// A program, a user that has signed in there, and a provider that holds the response with the second refresh token.
struct Rotating {
    liar: Liar,
    _upstream: Upstream,
    alice: Visitor,
}

impl Rotating {
    /// Writes `gateway.toml` with addresses that several programs can have in succession.
    fn prepared(folder: &Path) -> (Liar, Upstream) {
        let liar = Liar::start(&json!({}));
        let upstream = Upstream::start();
        let mut text = Gateway::config_text(&upstream.address.to_string(), &everything(&liar.issuer, ""));
        while text.contains("127.0.0.1:0") {
            text = text.replacen("127.0.0.1:0", &free_address().to_string(), 1);
        }
        std::fs::write(folder.join("gateway.toml"), text).expect("written");
        (liar, upstream)
    }

    async fn at(process: &GatewayProcess, (liar, upstream): (Liar, Upstream)) -> Rotating {
        is_ready(process.addresses[0]).await;
        let mut alice = Visitor::at(process.addresses[0]);
        issues(&liar, "first", SHORT);
        is_signed_in(&liar, &mut alice).await;
        liar.hold(true);
        issues(&liar, "second", SHORT);
        refreshes(&liar, &alice, 1).await;
        Rotating { liar, _upstream: upstream, alice }
    }

    async fn the_new_token_is_sent(&self) {
        issues(&self.liar, "third", 600);
        refreshes(&self.liar, &self.alice, 2).await;
        assert_eq!(sent(&self.liar), ["first", "second"]);
        let mut alice = self.alice.clone();
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    }
}

async fn is_serving(program: Program, folder: &TempDir) -> GatewayProcess {
    let folder = folder.path().to_owned();
    tokio::task::spawn_blocking(move || GatewayProcess::wait_for(program, &folder)).await.expect("no panic")
}

/// The log, when it has this. Meanwhile, the provider responds.
async fn says(process: &GatewayProcess, text: &str) -> String {
    eventually_within(PATIENCE, "a line of the log", async || match process.program.stderr_so_far() {
        log if log.contains(text) => Ok(log),
        log => Err(log),
    })
    .await
}

#[tokio::test]
async fn a_take_over_waits_for_the_response_of_the_provider() {
    let folder = folder();
    let prepared = Rotating::prepared(folder.path());
    let old = GatewayProcess::start(folder.path());
    let story = Rotating::at(&old, prepared).await;
    let next = Program::start(folder.path(), &["serve", "--take-over"]);
    says(&old, "draining signal=\"take-over\"").await;
    // Longer than other requests can use the store.
    tokio::time::sleep(Duration::from_secs(2)).await;
    story.liar.hold(false);
    let _next = is_serving(next, &folder).await;
    story.the_new_token_is_sent().await;
}

#[tokio::test]
async fn a_full_disk_delays_the_new_token() {
    let folder = folder();
    let prepared = Rotating::prepared(folder.path());
    let (served, disk) = disk::serve(folder.path());
    let story = Rotating::at(&served, prepared).await;
    disk.set_state("full");
    story.liar.hold(false);
    says(&served, "cannot save a refreshed login").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.set_state("well");
    story.the_new_token_is_sent().await;
    let log = says(&served, "all refreshed logins are saved").await;
    assert_eq!(log.matches("cannot save a refreshed login").count(), 1, "{log}");
}

#[tokio::test]
async fn a_stop_waits_until_the_new_token_is_saved() {
    let folder = folder();
    let prepared = Rotating::prepared(folder.path());
    let (served, disk) = disk::serve(folder.path());
    let story = Rotating::at(&served, prepared).await;
    disk.set_state("full");
    story.liar.hold(false);
    says(&served, "cannot save a refreshed login").await;
    served.program.signal("TERM");
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.set_state("well");
    let (status, _, said) = tokio::task::spawn_blocking(|| served.program.wait()).await.expect("no panic");
    assert!(status.success(), "{said}");
    let again = GatewayProcess::start(folder.path());
    is_ready(again.addresses[0]).await;
    story.the_new_token_is_sent().await;
}

#[tokio::test]
async fn an_outage_of_the_database_delays_the_new_token() {
    let mut server = PostgresServer::start();
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let more = format!("[store]\n{}\n{}", server.store_keys(), everything(&liar.issuer, ""));
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::in_folder(text, folder(), Arc::new(ManualClock::new()));
    is_ready(gateway.address()).await;
    let mut alice = Visitor::of(&gateway);
    issues(&liar, "first", 600);
    is_signed_in(&liar, &mut alice).await;
    liar.hold(true);
    issues(&liar, "second", 600);
    gateway.advance(Duration::from_secs(560));
    refreshes(&liar, &alice, 1).await;
    server.kill();
    liar.hold(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart();
    issues(&liar, "third", 600);
    eventually_within(PATIENCE, "the next refresh", async || {
        gateway.advance(Duration::from_secs(5));
        alice.fetch(&format!("{APP}/")).await;
        match sent(&liar) {
            sent if sent.len() > 1 => Ok(()),
            sent => Err(format!("{sent:?}")),
        }
    })
    .await;
    assert_eq!(sent(&liar), ["first", "second"]);
}

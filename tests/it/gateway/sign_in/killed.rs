//! `kill -9` at each point of a sign-in, and of a refresh at the provider. After the restart there is a login or none,
//! and no code was sent twice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::held::{Held, Hold};
use super::refresh::{KEYS, refreshes};
use super::{APP, CALLBACK, everything, folder, is_ready, provider};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, OidcProvider, Upstream};

/// Longer than a lease in PostgreSQL, which no other gateway can end.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Stored {
    Sqlite,
    Postgres,
}

struct Story {
    provider: OidcProvider,
    held: Held,
    text: String,
    folder: Arc<TempDir>,
    _upstream: Upstream,
    alice: Visitor,
}

/// A gateway that is killed at the end of `until`.
impl Story {
    /// `more`: settings of the provider.
    async fn begin(stored: Stored, more: Value) -> (Story, GatewayProcess) {
        let (held, upstream) = (Held::bind(), Upstream::start());
        let mut settings = more;
        settings["issuer"] = json!(format!("http://{}", held.address));
        let provider = provider::start(settings);
        held.pass_to(provider.address);
        // A held call must not end by itself.
        let keys = format!("{KEYS}\nclient_timeout = \"1m\"");
        let mut more = everything(&provider.issuer, &keys);
        if let Stored::Postgres = stored {
            more = format!("[store]\n{}\n{more}", PostgresServer::shared().store_keys());
        }
        let text = Gateway::config_text(&upstream.address.to_string(), &more);
        let folder = folder();
        std::fs::write(folder.path().join("gateway.toml"), &text).expect("written");
        let process = GatewayProcess::start(folder.path());
        is_ready(process.addresses[0]).await;
        let alice = Visitor::at(process.addresses[0]);
        (Story { provider, held, text, folder, _upstream: upstream, alice }, process)
    }

    /// The URL of the callback. The browser is at the provider, and agrees.
    async fn agree(&mut self) -> String {
        self.alice.navigate_until(&format!("{APP}/orders"), CALLBACK).await
    }

    /// Starts a gateway in this process, with a clock that the test moves.
    async fn restart(&mut self) -> Gateway {
        self.held.hold(Hold::Nothing);
        let gateway = Gateway::in_folder(self.text.clone(), self.folder.clone(), Arc::new(ManualClock::new()));
        is_ready(gateway.address()).await;
        self.alice.move_to(&gateway);
        gateway
    }

    /// The browser loads the callback, and the gateway is killed when the provider's token endpoint is reached.
    async fn kill_in_callback(&mut self, process: GatewayProcess, back: &str, hold: Hold) {
        self.held.hold(hold);
        let mut browser = self.alice.clone();
        let back = back.to_owned();
        let loading = tokio::spawn(async move { browser.load(&back).await });
        self.held.is_reached().await;
        process.program.kill();
        loading.abort();
    }

    /// Requests come until a refresh is held. Then the gateway is killed.
    async fn kill_in_refresh(&mut self, process: GatewayProcess, hold: Hold) {
        assert_eq!(self.alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", self.alice.way);
        self.held.hold(hold);
        let mut requests = Vec::new();
        eventually_within(PATIENCE, "a refresh is held", async || {
            let mut alice = self.alice.clone();
            requests.push(tokio::spawn(async move { alice.fetch(&format!("{APP}/")).await }));
            if self.held.reached() > 0 { Ok(()) } else { Err(String::new()) }
        })
        .await;
        assert_eq!(self.held.reached(), 1, "one refresh at a time");
        process.program.kill();
        requests.iter().for_each(|request| request.abort());
    }

    async fn codes(&self) -> Vec<Value> {
        let calls = self.provider.log("token").await;
        let codes = calls.into_iter().filter(|call| call["params"]["grant_type"] == "authorization_code");
        codes.map(|call| call["params"]["code"].clone()).collect()
    }
}

/// States B and C. `sent`: how often the provider got the code of the first attempt.
async fn the_attempt_is_used_up(stored: Stored, hold: Hold, sent: usize) {
    let (mut story, process) = Story::begin(stored, json!({})).await;
    let back = story.agree().await;
    story.kill_in_callback(process, &back, hold).await;
    let _gateway = story.restart().await;
    assert_eq!(story.codes().await.len(), sent);
    let again = story.alice.load(&back).await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, Some("https://app.example/orders")));
    assert_eq!((story.alice.session(), story.codes().await.len()), (None, sent), "the code is not sent again");
    // The user sees nothing of it.
    assert_eq!(story.alice.navigate(&format!("{APP}/orders")).await.status, 200, "{:#?}", story.alice.way);
    assert_eq!(story.codes().await.len(), sent + 1);
}

#[tokio::test]
async fn before_the_code_is_sent_with_sqlite() {
    the_attempt_is_used_up(Stored::Sqlite, Hold::Requests, 0).await;
}

#[tokio::test]
async fn before_the_code_is_sent_with_postgresql() {
    the_attempt_is_used_up(Stored::Postgres, Hold::Requests, 0).await;
}

#[tokio::test]
async fn before_the_tokens_are_read_with_sqlite() {
    the_attempt_is_used_up(Stored::Sqlite, Hold::Responses, 1).await;
}

#[tokio::test]
async fn before_the_tokens_are_read_with_postgresql() {
    the_attempt_is_used_up(Stored::Postgres, Hold::Responses, 1).await;
}

/// State D: the session is durable, and the browser has no cookie of it.
#[tokio::test]
async fn before_the_browser_has_its_cookie() {
    for stored in [Stored::Sqlite, Stored::Postgres] {
        let (mut story, process) = Story::begin(stored, json!({})).await;
        let back = story.agree().await;
        assert_eq!(story.alice.clone().load(&back).await.status, 303);
        process.program.kill();
        let gateway = story.restart().await;
        assert_eq!(story.alice.load(&back).await.status, 303);
        assert_eq!((story.alice.session(), story.codes().await.len()), (None, 1), "the code is not sent again");
        assert_eq!(story.alice.navigate(&format!("{APP}/orders")).await.status, 200, "{:#?}", story.alice.way);
        // A gateway on PostgreSQL has the time of the database, which the test cannot move.
        let Stored::Sqlite = stored else { continue };
        gateway.advance(Duration::from_mins(6));
        eventually_within(PATIENCE, "the login that no browser has ends at the provider", async || {
            match story.provider.log("revocation").await.len() {
                1 => Ok(()),
                count => Err(count.to_string()),
            }
        })
        .await;
        assert_eq!(story.alice.fetch(&format!("{APP}/")).await.status, 200, "and no other");
    }
}

/// States F and G. The access token lives 8 s and is refreshed after 4. `statuses`: of the refreshes at the provider.
async fn the_refresh_is_repeated(stored: Stored, hold: Hold, rotates: bool, statuses: &[u64]) {
    let more = json!({ "configuration": { "rotateRefreshToken": rotates }, "ttl": { "AccessToken": 8 } });
    let (mut story, process) = Story::begin(stored, more).await;
    story.kill_in_refresh(process, hold).await;
    let gateway = story.restart().await;
    // No request makes it do so: the time for which a provider accepts a spent refresh token is short.
    eventually_within(PATIENCE, "the refresh is repeated", async || {
        // The lease of the killed process ends in PostgreSQL.
        gateway.advance(Duration::from_millis(100));
        let found: Vec<_> = refreshes(&story.provider).await.iter().map(|call| call["status"].as_u64()).collect();
        let expected: Vec<_> = statuses.iter().copied().map(Some).collect();
        if found.starts_with(&expected) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    let is_alive = statuses.iter().all(|status| *status == 200);
    eventually_within(PATIENCE, "the session goes on, or ends", async || {
        match (story.alice.fetch(&format!("{APP}/")).await.status.as_u16(), is_alive) {
            (200, true) | (401, false) => Ok(()),
            (status, _) => Err(status.to_string()),
        }
    })
    .await;
    if !is_alive {
        assert_eq!(story.alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", story.alice.way);
    }
}

#[tokio::test]
async fn before_the_provider_has_the_refresh_with_sqlite() {
    the_refresh_is_repeated(Stored::Sqlite, Hold::Requests, true, &[200]).await;
}

#[tokio::test]
async fn before_the_provider_has_the_refresh_with_postgresql() {
    the_refresh_is_repeated(Stored::Postgres, Hold::Requests, true, &[200]).await;
}

/// The provider accepts the same refresh token again.
#[tokio::test]
async fn before_the_refreshed_tokens_are_read_with_sqlite() {
    the_refresh_is_repeated(Stored::Sqlite, Hold::Responses, false, &[200, 200]).await;
}

#[tokio::test]
async fn before_the_refreshed_tokens_are_read_with_postgresql() {
    the_refresh_is_repeated(Stored::Postgres, Hold::Responses, false, &[200, 200]).await;
}

/// The provider accepts no spent refresh token: the only way in which a crash ends a session.
#[tokio::test]
async fn before_the_refreshed_tokens_of_a_strict_provider_are_read() {
    the_refresh_is_repeated(Stored::Sqlite, Hold::Responses, true, &[200, 400]).await;
}

/// State H: the provider has spent the refresh token and sent the next one, and the gateway asks UserInfo.
#[tokio::test]
async fn before_the_rest_of_a_refresh_is_believed() {
    let more = json!({ "configuration": { "rotateRefreshToken": true }, "ttl": { "AccessToken": 8 } });
    let (mut story, process) = Story::begin(Stored::Sqlite, more).await;
    assert_eq!(story.alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", story.alice.way);
    story.provider.control("/faults", &json!([{ "path": "/me", "delay_ms": 60_000 }])).await;
    eventually_within(PATIENCE, "UserInfo is asked", async || {
        assert_eq!(story.alice.fetch(&format!("{APP}/")).await.status, 200);
        match story.provider.log("fault").await.len() {
            0 => Err(String::new()),
            _ => Ok(()),
        }
    })
    .await;
    process.program.kill();
    story.provider.control("/faults", &json!([])).await;
    let _gateway = story.restart().await;
    eventually_within(PATIENCE, "the refresh is repeated", async || match refreshes(&story.provider).await.len() {
        2 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    assert_eq!(story.alice.fetch(&format!("{APP}/")).await.status, 200);
    let statuses: Vec<_> = refreshes(&story.provider).await.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [200, 200], "no refresh token was used twice");
}

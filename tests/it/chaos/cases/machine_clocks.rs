//! Clocks of gateways that are ahead while a revocation comes into force. It must hold when they are right again.

use std::thread::sleep;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;

use super::super::cluster::{Cluster, Setup};
use super::super::load::Background;
use crate::support::postgres::{PostgresServer, set_clock};
use crate::support::program::{GatewayProcess, Program};
use crate::support::tokens::EXTERNAL_ISSUER;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream, preload};

/// Longer than any token lives.
const AHEAD: i64 = 30 * HOUR;
const HOUR: i64 = 3_600_000;
/// More than two polls of the log.
const POLLS: Duration = Duration::from_millis(600);

/// Two gateways, and a token of another issuer that both accept.
struct Place {
    background: Background,
    cluster: Cluster,
    jti: String,
    token: String,
    _server: PostgresServer,
}

impl Place {
    fn start() -> Place {
        let server = PostgresServer::start();
        let cluster = Cluster::start(&server, Setup { clocks: &[0, 0], ..Setup::default() });
        let (jti, token) = cluster.foreign_token(1);
        let place = Place { background: Background::start(), cluster, jti, token, _server: server };
        assert_eq!(place.statuses(), [Some(StatusCode::OK); 2]);
        place
    }

    /// What each gateway says to the token.
    fn statuses(&self) -> [Option<StatusCode>; 2] {
        [0, 1].map(|number| {
            let target = self.cluster.replicas[number].target();
            let token = self.token.clone();
            self.background.run(async move { target.get(&token).await })
        })
    }

    fn revoke(&self) {
        let target = self.cluster.replicas[0].target();
        let what = json!({ "jti": self.jti, "issuer": EXTERNAL_ISSUER });
        let status = self.background.run(async move { target.revoke(what).await });
        assert_eq!(status, Some(StatusCode::OK));
    }

    /// Revokes the token while the clock of this gateway is ahead.
    fn revoke_while_ahead(&self, wrong: usize) {
        self.cluster.replicas[wrong].set_clock(AHEAD);
        self.revoke();
        sleep(POLLS);
        self.cluster.replicas[wrong].set_clock(0);
        self.cluster.wait_until_ready();
    }
}

#[test]
fn a_revocation_holds_at_the_gateway_that_made_it_while_it_was_ahead() {
    let place = Place::start();
    place.revoke_while_ahead(0);
    assert_eq!(place.statuses(), [Some(StatusCode::UNAUTHORIZED); 2]);
}

#[test]
fn a_revocation_holds_at_another_gateway_that_was_ahead() {
    let place = Place::start();
    place.revoke_while_ahead(1);
    assert_eq!(place.statuses(), [Some(StatusCode::UNAUTHORIZED); 2]);
}

/// As a machine with its real-time clock in local time, until its time service has corrected it.
#[test]
fn a_revocation_holds_at_a_gateway_that_started_ahead() {
    let mut place = Place::start();
    place.revoke();
    place.cluster.replicas[1].kill();
    place.cluster.replicas[1].set_clock(AHEAD);
    place.cluster.replicas[1].restart();
    place.cluster.replicas[1].set_clock(0);
    place.cluster.wait_until_ready();
    assert_eq!(place.statuses(), [Some(StatusCode::UNAUTHORIZED); 2]);
}

/// Its own tokens live 15 minutes: less time makes it forget their revocation.
#[tokio::test]
async fn a_logout_holds_at_a_gateway_that_was_two_hours_ahead() {
    let upstream = Upstream::start();
    let server = PostgresServer::start();
    let place = folder(&upstream, &format!("[store]\n{}", server.store_keys()));
    let served = start(&place);
    let pair = login(&served).await;
    let client = served.client().bearer(&pair.access);
    eventually_ok("it is ready", async || match client.get("/").await.status.as_u16() {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    set_clock(place.path(), 2 * HOUR);
    assert_eq!(client.delete(&format!("/token/{}", pair.token_id)).await.status, 200);
    sleep(POLLS);
    set_clock(place.path(), 0);
    sleep(POLLS);
    assert_eq!(client.get("/").await.status, 401);
}

fn folder(upstream: &Upstream, more: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    // A busy machine takes longer than the default.
    let text = text.replace("[tokens]\n", "[tokens]\nrefresh_grace = \"30s\"\n");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    preload::compile("clock", folder.path());
    std::fs::write(folder.path().join("clock.millis"), 0_i64.to_ne_bytes()).expect("written");
    folder
}

/// With a clock that the test sets.
fn start(folder: &TempDir) -> GatewayProcess {
    let line = "exec env LD_PRELOAD=./clock.so BEARWARD_CLOCK=0 BEARWARD_CLOCK_FILE=./clock.millis \"$0\" serve";
    GatewayProcess::wait_for(Program::start_with_shell(folder.path(), line), folder.path())
}

async fn login(at: &GatewayProcess) -> TokenPair {
    TokenPair::from_json(&at.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await.json())
}

/// With SQLite: the gateway is alone with its clock.
mod sqlite {
    use super::*;

    async fn refresh(at: &GatewayProcess, pair: &TokenPair) -> (u16, String) {
        let body = json!({ "refreshToken": pair.refresh });
        let response = at.client().bearer(&pair.access).post("/user/refresh", &body).await;
        (response.status.as_u16(), response.text())
    }

    /// Refreshes, and uses the new access token, which confirms it.
    async fn child(at: &GatewayProcess, parent: &TokenPair) -> TokenPair {
        let (status, text) = refresh(at, parent).await;
        assert_eq!(status, 200, "{text}");
        let child = TokenPair::from_json(&serde_json::from_str(&text).expect("json"));
        assert_eq!(at.client().bearer(&child.access).get("/").await.status, 200);
        child
    }

    /// The second tab presents `parent` within `refresh_grace`, and then the first one refreshes `child`.
    async fn assert_in_grace(at: &GatewayProcess, parent: &TokenPair, child: &TokenPair) {
        let repeated = refresh(at, parent).await;
        let lives = refresh(at, child).await;
        assert_eq!((repeated.0, lives.0), (200, 200), "{} {}", repeated.1, lives.1);
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_for_a_while_leaves_the_grace_period_after_a_restart() {
        let upstream = Upstream::start();
        let place = folder(&upstream, "");
        let served = start(&place);
        let first = login(&served).await;
        set_clock(place.path(), HOUR);
        let next = child(&served, &first).await;
        set_clock(place.path(), 0);
        let parent = child(&served, &next).await;
        let last = child(&served, &parent).await;
        // The confirmation is written.
        sleep(Duration::from_millis(1_500));
        served.program.kill();
        assert_in_grace(&start(&place), &parent, &last).await;
    }

    #[tokio::test]
    async fn a_clock_that_is_set_forward_ends_no_grace_period() {
        let upstream = Upstream::start();
        let place = folder(&upstream, "");
        let served = start(&place);
        let parent = login(&served).await;
        let last = child(&served, &parent).await;
        set_clock(place.path(), HOUR);
        // After a step, nothing counts as reuse for five seconds.
        sleep(Duration::from_secs(7));
        assert_in_grace(&served, &parent, &last).await;
    }
}
